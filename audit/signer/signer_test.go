// SPDX-License-Identifier: Apache-2.0

package signer

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSameBytes: both ways to a signature, and the library's, give the same.
func TestSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.SliceOfN(rapid.Byte(), ed25519.SeedSize, ed25519.SeedSize).Draw(t, "seed")
		message := rapid.SliceOf(rapid.Byte()).Draw(t, "message")
		same(t, seed, message)
	})
}

func FuzzSameBytes(f *testing.F) {
	f.Add(make([]byte, ed25519.SeedSize), []byte(nil))
	f.Add(bytes.Repeat([]byte{0xff}, ed25519.SeedSize), []byte("message"))
	f.Fuzz(func(t *testing.T, seed, message []byte) {
		if len(seed) == ed25519.SeedSize {
			same(t, seed, message)
		}
	})
}

func same(t interface {
	Errorf(format string, args ...any)
	Fatal(...any)
}, seed, message []byte) {
	key, err := New(seed)
	if err != nil {
		t.Fatal(err)
	}
	theirs := ed25519.NewKeyFromSeed(seed)
	if !key.whole.Equal(theirs) {
		t.Errorf("the key of seed %x is %x", seed, []byte(key.whole))
	}
	want := ed25519.Sign(theirs, message)
	for way, got := range map[string][]byte{"without tables": key.sign(message), "by Sign": key.Sign(message)} {
		if !bytes.Equal(got, want) {
			t.Errorf("seed %x, message %x, %s: %x instead of %x", seed, message, way, got, want)
		}
	}
}

// TestVectors are three of RFC 8032, section 7.1.
func TestVectors(t *testing.T) {
	for _, v := range []struct{ seed, public, message, signature string }{
		{
			"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
			"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
			"",
			"e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
		},
		{
			"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
			"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
			"72",
			"92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
		},
		{
			"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
			"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
			"af82",
			"6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
		},
	} {
		key := newKey(t, unhex(t, v.seed))
		if got := hex.EncodeToString(key.Public()); got != v.public {
			t.Errorf("the public key of %s is %s", v.seed, got)
		}
		if got := hex.EncodeToString(key.sign(unhex(t, v.message))); got != v.signature {
			t.Errorf("%s signs %q with %s", v.seed, v.message, got)
		}
	}
}

// TestMade: a signature is a key's only when it is the one that it makes, whatever
// was changed, and in whatever way signatures are made by now.
func TestMade(t *testing.T) {
	seed := bytes.Repeat([]byte{7}, ed25519.SeedSize)
	key, other := newKey(t, seed), newKey(t, make([]byte, ed25519.SeedSize))
	message := []byte("message")
	signature := ed25519.Sign(ed25519.NewKeyFromSeed(seed), message)
	for made.Load() <= few+10 {
		if !key.Made(message, signature) {
			t.Fatalf("after %d signatures its own is not the key's", made.Load())
		}
		for i := range signature {
			changed := bytes.Clone(signature)
			changed[i] ^= 1 << (i % 8)
			if key.Made(message, changed) {
				t.Fatalf("with byte %d changed the signature is the key's", i)
			}
		}
		for name, taken := range map[string]bool{
			"of another message": key.Made([]byte("massage"), signature),
			"of another key":     other.Made(message, signature),
			"nothing":            key.Made(message, nil),
			"a part":             key.Made(message, signature[:63]),
			"and more":           key.Made(message, append(bytes.Clone(signature), 0)),
		} {
			if taken {
				t.Errorf("a signature was taken for the key's: %s", name)
			}
		}
	}
}

// TestHidden: no verb shows a key, nor anything that has one.
func TestHidden(t *testing.T) {
	seed := []byte("a seed of 32 bytes, to be found.")
	key := newKey(t, seed)
	text := fmt.Sprintf("%v %+v %#v %s %x %d %v %+v", key, key, key, key, key, key, struct{ K *Key }{key}, []*Key{key})
	for _, secret := range []string{string(seed), hex.EncodeToString(seed), strings.Trim(fmt.Sprint(seed[:8]), "[]"), hex.EncodeToString(key.prefix[:])} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in %q", secret, text)
		}
	}
}

func TestBadSeed(t *testing.T) {
	for _, n := range []int{0, 31, 33, 64} {
		if _, err := New(make([]byte, n)); err == nil {
			t.Errorf("a seed of %d bytes is taken", n)
		}
	}
}

func newKey(t *testing.T, seed []byte) *Key {
	t.Helper()
	key, err := New(seed)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
