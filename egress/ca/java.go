// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf16"
)

// JavaPassword opens what Java makes. It protects nothing: certificates are
// public, and every Java has this one.
const JavaPassword = "changeit"

// maxCertificates bounds a bundle; public ones have about 150.
const maxCertificates = 2000

// Numbers of the format JKS, as sun.security.provider.JavaKeyStore writes it.
const (
	jksMagic   = 0xfeedfeed
	jksVersion = 2
	jksTrusted = 2
)

// Java makes a key store that Java takes for its certificates of authorities out
// of a bundle in PEM; Java reads no PEM.
func Java(bundle []byte) ([]byte, error) {
	var entries bytes.Buffer
	count := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if count++; count > maxCertificates {
			return nil, fmt.Errorf("a bundle of more than %d certificates", maxCertificates)
		}
		number(&entries, uint32(jksTrusted))
		text(&entries, "caisson-"+strconv.Itoa(count))
		number(&entries, uint64(time.Unix(0, 0).UnixMilli())) // the same bundle gives the same bytes
		text(&entries, "X.509")
		number(&entries, uint32(len(block.Bytes)))
		entries.Write(block.Bytes)
	}
	if count == 0 {
		return nil, errors.New("a bundle without a certificate")
	}
	var b bytes.Buffer
	number(&b, uint32(jksMagic))
	number(&b, uint32(jksVersion))
	number(&b, uint32(count))
	b.Write(entries.Bytes())
	sum := sha1.New()
	_ = binary.Write(sum, binary.BigEndian, utf16.Encode([]rune(JavaPassword)))
	sum.Write([]byte("Mighty Aphrodite")) // the format's own salt
	sum.Write(b.Bytes())
	return sum.Sum(b.Bytes()), nil
}

func number[T uint32 | uint64](b *bytes.Buffer, n T) { _ = binary.Write(b, binary.BigEndian, n) }

// text is how java.io.DataOutput writes ASCII.
func text(b *bytes.Buffer, s string) {
	_ = binary.Write(b, binary.BigEndian, uint16(len(s)))
	b.WriteString(s)
}
