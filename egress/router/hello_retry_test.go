// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// record is one of TLS.
func record(kind byte, body ...byte) []byte {
	return append([]byte{kind, 3, 3, byte(len(body) >> 8), byte(len(body))}, body...)
}

// serverHello is one with this random number.
func serverHello(random []byte) []byte {
	return record(recordHandshake, append(append([]byte{messageServerHello, 0, 0, 40, 3, 3}, random...), "the rest"...)...)
}

func TestAsks(t *testing.T) {
	again, other := serverHello(retryRandom), serverHello(make([]byte, 32))
	warning := record(recordAlert, 1, 112)
	for what, c := range map[string]struct {
		said  []byte
		retry bool
	}{
		"a retry": {again, true}, "a hello": {other, false}, "a retry after a warning": {slices.Concat(warning, again), true},
		"a hello after a warning": {slices.Concat(warning, warning, other), false}, "nothing": {nil, false}, "words": {[]byte("HTTP/1.1 400 Bad Request"), false},
		"a certificate": {record(recordHandshake, 11, 0, 0, 0), false}, "a retry in crumbs": {record(recordHandshake, again[5:15]...), true},
		"half a retry": {again[:30], false}, "a refusal": {record(recordAlert, 2, 40), false},
	} {
		a := NewAnswer(iotest.OneByteReader(bytes.NewReader(c.said)))
		if got, err := io.ReadAll(a); !bytes.Equal(got, c.said) || err != nil {
			t.Errorf("%s became %q, %v", what, got, err)
		}
		<-a.known
		if a.retry != c.retry {
			t.Errorf("%s asks again: %v", what, a.retry)
		}
	}
}

// What a client says after its first ClientHello, where the server asks for another one,
// and where not.
func TestRest(t *testing.T) {
	good, evil := extensions(sni("good.test")), extensions(sni("evil.test"))
	middle, early := record(recordChangeCipher, 1), record(recordData, 1, 2, 3)
	odd := errors.New("another name")
	for what, c := range map[string]struct {
		said          []byte
		retry, passes bool
	}{
		"the same name":           {slices.Concat(middle, good, early), true, true},
		"in small records":        {split(good, 7), true, true},
		"after early data":        {slices.Concat(early, middle, good), true, true},
		"nothing":                 {nil, true, true},
		"another name":            {evil, true, false},
		"another after data":      {slices.Concat(early, middle, evil), true, false},
		"another in small ones":   {split(evil, 7), true, false},
		"no hello":                {record(recordHandshake, 16, 0, 0, 0), true, false},
		"words":                   {[]byte("hello"), true, false},
		"what nobody asked for":   {evil, false, true}, // the server takes it for a fault
		"the rest of a handshake": {slices.Concat(record(recordHandshake, 16, 0, 0, 0), middle), false, true},
	} {
		answer := NewAnswer(bytes.NewReader(serverHello(make([]byte, 32))))
		if c.retry {
			answer = NewAnswer(bytes.NewReader(serverHello(retryRandom)))
		}
		_, _ = io.ReadAll(answer)
		all := slices.Concat(good, c.said)
		in := bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(all)), BufferSize)
		_, h, err := Peek(in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(&Rest{R: in, Hello: h, Answer: answer, Check: func(h Hello, err error) error {
			if err == nil && h.Server.String() != "good.test" {
				return odd
			}
			return err
		}})
		if c.passes && (!bytes.Equal(got, all) || err != nil) {
			t.Errorf("%s: %d of %d bytes, %v", what, len(got), len(all), err)
		}
		if !c.passes && (err == nil || strings.Contains(string(got[len(good):]), "evil.test")) {
			t.Errorf("%s: %q, %v", what, got[len(good):], err)
		}
	}
}

// FuzzRest: of what a client says after its first ClientHello, nothing passes to a server
// that asks for a second one but what that is, with the same name, and what a server drops
// before it; and all of it is what the client said.
func FuzzRest(f *testing.F) {
	good, evil := extensions(sni("good.test")), extensions(sni("evil.test"))
	middle, early := record(recordChangeCipher, 1), record(recordData, 1, 2, 3)
	again, other, warning := serverHello(retryRandom), serverHello(make([]byte, 32)), record(recordAlert, 1, 112)
	for _, server := range [][]byte{again, other, slices.Concat(warning, again), record(recordHandshake, again[5:15]...), again[:30], nil} {
		for _, said := range [][]byte{good, evil, slices.Concat(middle, evil), slices.Concat(early, middle, good), split(evil, 7), []byte("words"), middle[:3]} {
			f.Add(server, said, uint8(3))
		}
	}
	odd := errors.New("another name")
	f.Fuzz(func(t *testing.T, server, said []byte, piece uint8) {
		answer := NewAnswer(pieces{bytes.NewReader(server), int(piece) + 1})
		if got, err := io.ReadAll(answer); !bytes.Equal(got, server) || err != nil {
			t.Fatalf("%x became %x, %v", server, got, err)
		}
		all := slices.Concat(good, said)
		in := bufio.NewReaderSize(pieces{bytes.NewReader(all), int(piece) + 1}, BufferSize)
		_, h, err := Peek(in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(&Rest{R: in, Hello: h, Answer: answer, Check: func(h Hello, err error) error {
			if err != nil || h.Server.String() != "good.test" {
				return odd
			}
			return nil
		}})
		if !bytes.HasPrefix(all, got) || err == nil && len(all)-len(got) >= 5 { // the head of a record, at the end
			t.Fatalf("%x became %x, %v", all, got, err)
		}
		if rest := got[len(good):]; asksAgain(server) && !sameHello(rest) {
			t.Fatalf("a server that asks again, %x, is told %x", server, rest)
		}
	})
}

// pieces gives no more than so many bytes at once.
type pieces struct {
	r io.Reader
	n int
}

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.n)]) }

// asksAgain reads a server's words as a client does: the first message of a handshake,
// joined of its records, after warnings.
func asksAgain(b []byte) bool {
	var message []byte
	for len(b) >= 5 && len(b) >= 5+recordLength(b) {
		switch b[0] {
		case recordAlert:
		case recordHandshake:
			message = append(message, b[5:5+recordLength(b)]...)
		default:
			return false
		}
		b = b[5+recordLength(b):]
		if len(message) >= 38 {
			return message[0] == messageServerHello && bytes.Equal(message[6:38], retryRandom)
		}
	}
	return false
}

// sameHello reads what followed a first ClientHello as a server does: what it drops, then
// another one, which names good.test or is not whole.
func sameHello(b []byte) bool {
	for len(b) >= 5 && (b[0] == recordChangeCipher || b[0] == recordData) {
		b = b[min(len(b), 5+recordLength(b)):]
	}
	if len(b) == 0 || b[0] == recordChangeCipher || b[0] == recordData {
		return true
	}
	same := true
	c := &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		same = strings.EqualFold(strings.TrimSuffix(i.ServerName, "."), "good.test")
		return nil, io.EOF
	}}
	_ = tls.Server(fixed{Reader: bytes.NewReader(b)}, c).Handshake()
	_, h, err := peeked(b)
	return same && err == nil && h.Server.String() == "good.test"
}
