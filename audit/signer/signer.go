// SPDX-License-Identifier: Apache-2.0

// Package signer signs with Ed25519, in a way that suits a process that signs a few
// times and ends.
//
// crypto/ed25519 makes a table of 256 multiples of the generator when it is first
// asked for a key or a signature, and another one of 64 for the first that it verifies:
// 1.6 ms of processor time in each process, and then some 20 µs a signature. Without
// tables a signature takes 65 µs, and a run makes four. So the first signatures are
// made by multiplying the generator as if it were any point, in constant time, and a
// process that goes on signing goes over to crypto/ed25519.
//
// Ed25519 leaves a signer no choice (RFC 8032, section 5.1.6): both ways give the same
// bytes, and tests compare them.
package signer

import (
	"crypto/ed25519"
	"crypto/fips140"
	"crypto/sha512"
	"crypto/subtle"
	"fmt"
	"sync/atomic"

	"filippo.io/edwards25519"
)

// few is how many signatures of a process are made without tables: as many as save no
// more than the tables cost. So whatever number it makes, it takes no more than twice
// the time that was needed.
const few = 32

// made counts the signatures of this process.
var made atomic.Int64

// Key is a private key. It is safe for use by many goroutines, and shows itself in no
// message.
type Key struct {
	// whole is the seed and the public key, as crypto/ed25519 wants it.
	whole ed25519.PrivateKey
	// scalar and prefix are the two halves of the seed's hash.
	scalar *edwards25519.Scalar
	prefix [32]byte
}

// New is the key of a seed. The public key is computed and never taken from
// elsewhere: with two public keys for one seed the same message gets two signatures
// that share their nonce, and from these the private key can be reckoned.
func New(seed []byte) (*Key, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("a seed of %d bytes", len(seed))
	}
	h := sha512.Sum512(seed)
	defer clear(h[:])
	k := &Key{}
	var err error
	if k.scalar, err = edwards25519.NewScalar().SetBytesWithClamping(h[:32]); err != nil {
		return nil, err
	}
	copy(k.prefix[:], h[32:])
	k.whole = append(append(make([]byte, 0, ed25519.PrivateKeySize), seed...), times(k.scalar)...)
	return k, nil
}

// Format hides the key, from every verb.
func (*Key) Format(s fmt.State, _ rune) { fmt.Fprint(s, "(key)") }

// Public is what its signatures are verified with.
func (k *Key) Public() ed25519.PublicKey { return k.whole.Public().(ed25519.PublicKey) }

// Sign signs a message.
func (k *Key) Sign(message []byte) []byte {
	// Who asks for the approved module gets no other.
	if made.Add(1) > few || fips140.Enabled() {
		return ed25519.Sign(k.whole, message)
	}
	return k.sign(message)
}

// Made says whether a signature is this key's of a message: whether it is the one that Sign
// makes. That takes less than to verify it, and needs no table. It tells nothing of the right
// one by how long it takes to say no.
func (k *Key) Made(message, signature []byte) bool {
	return subtle.ConstantTimeCompare(k.Sign(message), signature) == 1
}

// sign is Sign without tables: RFC 8032, section 5.1.6.
func (k *Key) sign(message []byte) []byte {
	r := hashed(k.prefix[:], message)
	R := times(r)
	s := edwards25519.NewScalar().MultiplyAdd(hashed(R, k.whole[ed25519.SeedSize:], message), k.scalar, r)
	return append(R, s.Bytes()...)
}

// hashed is the hash of some texts as a number.
func hashed(texts ...[]byte) *edwards25519.Scalar {
	h := sha512.New()
	for _, t := range texts {
		h.Write(t)
	}
	s, err := edwards25519.NewScalar().SetUniformBytes(h.Sum(make([]byte, 0, sha512.Size)))
	if err != nil {
		panic(err) // of another length alone
	}
	return s
}

// times multiplies the generator, in constant time.
func times(s *edwards25519.Scalar) []byte {
	return new(edwards25519.Point).ScalarMult(s, edwards25519.NewGeneratorPoint()).Bytes()
}
