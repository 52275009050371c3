// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"fmt"
	"slices"

	"github.com/caisson-run/caisson/egress/rule"
)

// Hello is what a TLS ClientHello says about where it wants to go.
type Hello struct {
	// Server is the name in the server_name extension; the zero Name when
	// there is none.
	Server rule.Name
	// Encrypted says that there is an encrypted ClientHello inside, with
	// another name that the server alone can read.
	Encrypted bool
	// Length is how much of the connection it takes, in bytes.
	Length int
}

// errShort says that the bytes are the beginning of something longer.
var errShort = errors.New("more bytes are needed")

// maxHello bounds a ClientHello, in bytes with its record headers. With
// post-quantum keys and a session ticket they are below 4 KiB; TLS allows 16 MiB.
const maxHello = 16 << 10

// FirstOfTLS is the first byte of every connection of TLS.
const FirstOfTLS = recordHandshake

// Numbers of TLS (RFC 8446, RFC 6066, RFC 9849).
const (
	recordChangeCipher = 20
	recordAlert        = 21
	recordHandshake    = 22
	recordData         = 23
	recordHeartbeat    = 24
	messageClientHello = 1
	messageServerHello = 2
	extServerName      = 0
	extEncrypted       = 0xfe0d
	nameHost           = 0
)

// parseHello reads a ClientHello from the records at the beginning of b. It is
// errShort when b ends too early, another error when it cannot be one that a
// server and we read in the same way.
func parseHello(b []byte) (Hello, error) {
	message, length, err := handshake(b)
	if err != nil {
		return Hello{}, err
	}
	h, err := clientHello(message)
	h.Length = length
	return h, err
}

// handshake joins the first handshake message, which may be spread over
// records, and says how long these are.
func handshake(b []byte) (message []byte, length int, err error) {
	whole := len(b)
	for {
		if len(b) < 5 {
			return nil, 0, errShort
		}
		n := recordLength(b)
		switch {
		case b[0] != recordHandshake || b[1] != 3:
			return nil, 0, errors.New("a TLS record of another kind comes before the end of the ClientHello")
		case n == 0:
			return nil, 0, errors.New("an empty TLS record")
		case len(b) < 5+n:
			message = append(message, b[5:]...)
			return nil, 0, tooLong(message, errShort)
		}
		message = append(message, b[5:5+n]...)
		b = b[5+n:]
		if len(message) < 4 {
			continue
		}
		if message[0] != messageClientHello {
			return nil, 0, errors.New("the first TLS message is no ClientHello")
		}
		size := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
		switch {
		case size > maxHello:
			return nil, 0, fmt.Errorf("the ClientHello has more than %d bytes", maxHello)
		case len(message) == 4+size:
			return message[4:], whole - len(b), nil
		case len(message) > 4+size:
			return nil, 0, errors.New("something follows the ClientHello in its record")
		}
	}
}

// tooLong sees the length that a message announces as soon as it can.
func tooLong(message []byte, otherwise error) error {
	if len(message) >= 4 && int(message[1])<<16|int(message[2])<<8|int(message[3]) > maxHello {
		return fmt.Errorf("the ClientHello has more than %d bytes", maxHello)
	}
	return otherwise
}

// clientHello reads the body of a ClientHello (RFC 8446, 4.1.2).
func clientHello(b []byte) (Hello, error) {
	c := cursor(b)
	c.skip(2 + 32) // version, random
	c.vector(1)    // session id
	c.vector(2)    // cipher suites
	compression := c.vector(1)
	if c == nil || len(compression) == 0 {
		return Hello{}, errMalformed
	}
	if len(c) == 0 {
		return Hello{}, nil // extensions are optional before TLS 1.3
	}
	extensions := c.vector(2)
	if c == nil || len(c) != 0 {
		return Hello{}, errMalformed
	}
	return readExtensions(extensions)
}

var errMalformed = errors.New("the ClientHello is malformed")

func readExtensions(c cursor) (h Hello, err error) {
	seen := map[uint16]bool{}
	for len(c) > 0 {
		kind := c.uint16()
		body := c.vector(2)
		if c == nil {
			return Hello{}, errMalformed
		}
		if seen[kind] {
			return Hello{}, errors.New("the ClientHello says the same thing twice")
		}
		seen[kind] = true
		switch kind {
		case extServerName:
			if h.Server, err = serverName(body); err != nil {
				return Hello{}, err
			}
		case extEncrypted:
			h.Encrypted = true
		}
	}
	return h, nil
}

// serverName reads the extension (RFC 6066, 3): one name of the only kind that
// there is.
func serverName(c cursor) (rule.Name, error) {
	list := c.vector(2)
	if c == nil || len(c) != 0 || len(list) == 0 || list[0] != nameHost {
		return rule.Name{}, errMalformed
	}
	list = list[1:]
	host := list.vector(2)
	if list == nil || len(list) != 0 {
		return rule.Name{}, errors.New("the ClientHello names more than one server")
	}
	// A server does not read other letters as we would: it may take the name for none.
	if slices.ContainsFunc(host, func(c byte) bool { return c >= 0x80 }) {
		return rule.Name{}, errors.New("the server's name in the ClientHello is not in ASCII")
	}
	n, err := rule.ParseName(string(host))
	if err != nil {
		return rule.Name{}, fmt.Errorf("the server's name in the ClientHello: %w", err)
	}
	return n, nil
}

// cursor reads from the front of bytes; after a fault it is nil and stays so.
// It is not nil when it has been read to its end.
type cursor []byte

func (c *cursor) skip(n int) []byte {
	if *c == nil || len(*c) < n {
		*c = nil
		return nil
	}
	b := (*c)[:n:n]
	*c = (*c)[n:]
	return b
}

func (c *cursor) uint16() uint16 {
	if b := c.skip(2); b != nil {
		return uint16(b[0])<<8 | uint16(b[1])
	}
	return 0
}

// vector reads a length of so many bytes and what it counts.
func (c *cursor) vector(lengthBytes int) cursor {
	n := 0
	for _, b := range c.skip(lengthBytes) {
		n = n<<8 | int(b)
	}
	if *c == nil {
		return nil
	}
	return cursor(c.skip(n))
}
