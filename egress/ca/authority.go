// SPDX-License-Identifier: Apache-2.0

// Package ca makes the certificates by which a router ends the TLS of
// hosts whose requests are judged, or get a secret.
//
// There are three, each made by the one before. An installation has an
// Authority, whose key stays in the state directory and in the processes that
// start routers. Each router gets an Issuer of its own, which can certify the
// hosts that the router ends and no other: that is written into its certificate,
// and clients hold it to that (RFC 5280, 4.2.1.10). The Issuer's Minter makes
// one certificate for each host, when it is first connected to.
//
// A sandbox trusts its installation's Authority, and no other program does. Code
// that takes a router over gains no more than the hosts of its own sandbox,
// which it has anyway.
package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

const (
	// life is how long an authority lives. It is installed nowhere, so that
	// replacing it costs nothing.
	life = 365 * 24 * time.Hour
	// reserve is what must be left of it when a run begins: more than the 30
	// days that a run can take.
	reserve = 60 * 24 * time.Hour
	// issuerLife is how long an issuer lives: longer than any run.
	issuerLife = 31 * 24 * time.Hour
	// skew is how far clocks may differ.
	skew = time.Hour
)

// Authority is what a sandbox trusts for the hosts that its router ends.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority that no installation has yet.
func New(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	// The name tells it from others of the same host, former ones too: clients
	// look for who signed by name.
	subject := pkix.Name{Organization: []string{"caisson"}, CommonName: "caisson of this host " + hex.EncodeToString(serial.Bytes()[:4])}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: now.Add(-skew), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLen: 1,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{cert: cert, key: key}, err
}

// newSerial is a number that cannot be guessed, of 16 bytes with the first bit
// clear: numbers are positive.
func newSerial() (*big.Int, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	b[0] = b[0]&0x3f | 0x40
	return new(big.Int).SetBytes(b[:]), nil
}

// PEM is the authority's certificate, for programs that should trust it.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// stale reports whether a is too old for a run that begins now.
func (a *Authority) stale(now time.Time) bool {
	return now.Before(a.cert.NotBefore) || now.Add(reserve).After(a.cert.NotAfter)
}

// Delegate makes an issuer for hosts, and for the names below each: that is what
// a certificate can say.
func (a *Authority) Delegate(hosts []rule.Name, now time.Time) (*wire.Issuer, error) {
	domains := make([]string, 0, len(hosts))
	for _, h := range hosts {
		if h.IsZero() {
			return nil, errors.New("a host without a name")
		}
		domains = append(domains, h.String())
	}
	slices.Sort(domains)
	domains = slices.Compact(domains)
	if len(domains) == 0 || len(domains) > wire.MaxHosts {
		return nil, fmt.Errorf("there are %d hosts to end the TLS of; there may be 1 to %d", len(domains), wire.MaxHosts)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"caisson"}, CommonName: "caisson of one sandbox"},
		NotBefore: now.Add(-skew), NotAfter: earlier(now.Add(issuerLife), a.cert.NotAfter),
		KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: domains,
		ExcludedIPRanges: []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	return &wire.Issuer{Cert: der, Key: pkcs8}, err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// encode is an authority as a file.
func (a *Authority) encode() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), a.PEM()...), nil
}

// decode reads what encode wrote.
func decode(b []byte) (*Authority, error) {
	first, rest := pem.Decode(b)
	second, rest := pem.Decode(rest)
	if first == nil || second == nil || first.Type != "PRIVATE KEY" || second.Type != "CERTIFICATE" || strings.TrimSpace(string(rest)) != "" {
		return nil, errors.New("it is not a key and a certificate")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(first.Bytes)
	if err != nil {
		return nil, errors.New("its key cannot be read") // the cause may tell of it
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("its key is of another kind")
	}
	cert, err := x509.ParseCertificate(second.Bytes)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("its key and its certificate do not belong together")
	}
	return &Authority{cert: cert, key: key}, nil
}
