// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"sync"
	"time"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

const (
	// leafLife is how long a host's certificate lives, and leafReserve what must
	// be left of it for a connection.
	leafLife    = 24 * time.Hour
	leafReserve = time.Hour
	// maxLeaves bounds the certificates that are kept; below a wildcard code
	// inside can think of any number of hosts.
	maxLeaves = 256
)

// Minter makes certificates for hosts. It may be used from many goroutines.
type Minter struct {
	chain  []byte
	issuer *x509.Certificate
	signer *ecdsa.PrivateKey
	key    *ecdsa.PrivateKey // of all hosts: they are one program
	now    func() time.Time

	mu     sync.Mutex
	leaves map[rule.Name]*tls.Certificate
}

// NewMinter makes a minter of what Delegate gave.
func NewMinter(i *wire.Issuer) (*Minter, error) {
	if i == nil {
		return nil, errors.New("there is no issuer")
	}
	cert, err := x509.ParseCertificate(i.Cert)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(i.Key)
	signer, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("the issuer's key cannot be read")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &Minter{chain: i.Cert, issuer: cert, signer: signer, key: key, now: time.Now, leaves: map[rule.Name]*tls.Certificate{}}, nil
}

// Leaf is the certificate of a host, with its issuer's.
func (m *Minter) Leaf(host rule.Name) (*tls.Certificate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if c := m.leaves[host]; c != nil && now.Add(leafReserve).Before(c.Leaf.NotAfter) {
		return c, nil
	}
	c, err := m.mint(host, now)
	if err != nil {
		return nil, err
	}
	if len(m.leaves) >= maxLeaves {
		clear(m.leaves) // making one takes less than a millisecond
	}
	m.leaves[host] = c
	return c, nil
}

func (m *Minter) mint(host rule.Name, now time.Time) (*tls.Certificate, error) {
	if host.IsZero() {
		return nil, errors.New("a host without a name")
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	// Clients look for the host in the alternative names alone (RFC 9525).
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"caisson"}, CommonName: "a host behind caisson"}, DNSNames: []string{host.String()},
		NotBefore: now.Add(-skew), NotAfter: earlier(now.Add(leafLife), m.issuer.NotAfter),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, m.issuer, m.key.Public(), m.signer)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der, m.chain}, PrivateKey: m.key, Leaf: leaf}, err
}
