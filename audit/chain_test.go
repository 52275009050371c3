// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// FuzzCanonical: what parses is the encoding of exactly one record.
func FuzzCanonical(f *testing.F) {
	r := record{seq: 7, at: -1, entry: "aud_x", event: eventIntent, prev: make([]byte, 32), bodyDigest: sum(nil)}
	f.Add(r.canonical())
	f.Add([]byte(recordDomain))
	f.Add(append(bytes.Repeat([]byte{0xff}, 30), recordDomain...))
	f.Add((&record{}).canonical())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := parseCanonical(b)
		if ok && !bytes.Equal(r.canonical(), b) {
			t.Errorf("%x parses as %+v, which encodes as %x", b, r, r.canonical())
		}
	})
}

// TestCanonicalIsOneToOne: different records have different encodings.
func TestCanonicalIsOneToOne(t *testing.T) {
	gen := rapid.Custom(func(t *rapid.T) record {
		return record{seq: rapid.Int64().Draw(t, "seq"), at: rapid.Int64().Draw(t, "at"), entry: rapid.StringN(0, 3, -1).Draw(t, "entry"),
			event: rapid.StringN(0, 3, -1).Draw(t, "event"), prev: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "prev"), bodyDigest: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "body")}
	})
	same := cmp.AllowUnexported(record{})
	rapid.Check(t, func(t *rapid.T) {
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if bytes.Equal(a.canonical(), b.canonical()) != cmp.Equal(a, b, same) {
			t.Errorf("%+v and %+v", a, b)
		}
		if back, ok := parseCanonical(a.canonical()); !ok || !cmp.Equal(a, back, same) {
			t.Errorf("%+v comes back as %+v, %v", a, back, ok)
		}
	})
}

// FuzzBody: whatever decodes is encoded the same each time, and comes back.
func FuzzBody(f *testing.F) {
	in, out := intent("a"), outcome("a")
	call, _ := in.call()
	ending, _ := out.ending()
	for _, v := range []any{call, ending, pruneBody{1, 2}, genesisBody{Version: 1}} {
		b, err := encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"actor":"a"}{}`))
	f.Add([]byte(`{"actor":"a","actor":"b","labels":{"b":"1","a":"2","\ud800":"x"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		roundTrip[Call](t, b)
		roundTrip[Ending](t, b)
		roundTrip[genesisBody](t, b)
		roundTrip[pruneBody](t, b)
	})
}

func roundTrip[T any](t *testing.T, b []byte) {
	var v, again T
	if decode(b, &v) != nil {
		return
	}
	one, err := encode(v)
	if err != nil {
		t.Fatalf("%q decodes and does not encode: %v", b, err)
	}
	if err := decode(one, &again); err != nil {
		t.Fatalf("%q does not decode: %v", one, err)
	}
	two, err := encode(again)
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("%q, then %q, %v", one, two, err)
	}
}

// FuzzClean: what is recorded is valid, bounded, and unchanged where it was.
func FuzzClean(f *testing.F) {
	f.Add("plain")
	f.Add("\xff\x00é\ufffd")
	f.Fuzz(func(t *testing.T, s string) {
		got := clean(s, 64)
		if !utf8.ValidString(got) || len(got) > 64*4+32 {
			t.Errorf("clean(%q) = %q", s, got)
		}
		if len(s) <= 64 && utf8.ValidString(s) && got != s {
			t.Errorf("clean(%q) = %q", s, got)
		}
		var back string
		b, err := json.Marshal(got)
		if err != nil || json.Unmarshal(b, &back) != nil || back != got {
			t.Errorf("%q does not survive JSON: %q, %v", got, back, err)
		}
	})
}

// TestDomains: no signature stands for another thing, or for another
// installation.
func TestDomains(t *testing.T) {
	key := newKey(t)
	pub := key.Public().(ed25519.PublicKey)
	r := record{seq: 1, entry: "e", event: eventIntent, prev: make([]byte, 32), body: []byte("{}")}
	r.seal(key, "one")
	if !r.authentic(pub, "one") || r.authentic(pub, "two") {
		t.Error("a record's signature is not bound to its installation")
	}
	c := newCheckpoint(key, "one", 1, r.link(), 5)
	if !c.valid(pub, "one") || c.valid(pub, "two") || c.valid(nil, "one") {
		t.Error("a checkpoint's signature is not bound to key and installation")
	}
	for name, change := range map[string]func(*Checkpoint){
		"installation": func(c *Checkpoint) { c.Installation = "two" },
		"count":        func(c *Checkpoint) { c.Count++ },
		"link":         func(c *Checkpoint) { c.Link = otherDigit(c.Link) },
		"time":         func(c *Checkpoint) { c.Time = c.Time.Add(1) },
		"signature":    func(c *Checkpoint) { c.Signature = otherDigit(c.Signature) },
	} {
		changed := c
		change(&changed)
		if changed.valid(pub, changed.Installation) {
			t.Errorf("a checkpoint with another %s is valid", name)
		}
	}
}

// otherDigit changes the first digit of a number in hexadecimal, whatever
// it was: a signature by a new key begins with any.
func otherDigit(s string) string {
	if s[0] == '0' {
		return "1" + s[1:]
	}
	return "0" + s[1:]
}

// FuzzHeadFile: audit.head is what writeHead makes, to the byte, or damaged.
func FuzzHeadFile(f *testing.F) {
	key := newKey(f)
	l := &Log{key: key, pub: key.Public().(ed25519.PublicKey), inst: "one"}
	line, err := headLine(newCheckpoint(key, "one", 1, make([]byte, 32), 5))
	must(f, err)
	if _, ok := l.parseHead(line); !ok {
		f.Fatal("a good head is refused")
	}
	f.Add(line)
	f.Add([]byte("{}"))
	f.Add(bytes.Replace(line, []byte("1"), []byte("2"), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := l.parseHead(b); ok && !bytes.Equal(b, line) {
			t.Errorf("%q was taken for the head %+v", b, c)
		}
	})
}

// newKey is a key that no other log has.
func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	return key
}
