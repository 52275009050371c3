// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"bufio"
	"bytes"
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
		_, h, err := First(in)
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
