// SPDX-License-Identifier: Apache-2.0

// Package peek looks at the first bytes of a connection, without taking them,
// for a second place where a client says whom it wants to talk to: TLS says it
// in the ClientHello, HTTP in every request.
//
// What comes in is written by code that may be hostile. Where a lenient server
// could read something else than is read here, that is an error.
package peek

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
)

// Kind is what a connection speaks. The zero Kind is Opaque.
type Kind int

// The kinds.
const (
	Opaque Kind = iota // nothing that names a host
	TLS
	HTTP
)

// BufferSize is what a reader's buffer must hold at least, in bytes.
const BufferSize = mostHello + 1<<10

// mostLine bounds the first line of an HTTP request, in bytes, with empty lines
// before it. What begins like one and is longer is taken for one.
const mostLine = 8 << 10

// First says what the client of r speaks, and for TLS what its ClientHello
// says. It reads until that is clear, at most BufferSize bytes, and leaves all
// of them in r, whose buffer must be that large. An error of the connection is
// returned as it is; io.EOF when not a byte came.
//
// When a deadline of the connection passes before it is clear, the error says
// so and the kind is Opaque: whoever goes on then uses a Guard.
func First(r *bufio.Reader) (Kind, Hello, error) {
	b, err := r.Peek(1)
	if err != nil {
		return Opaque, Hello{}, err
	}
	switch b[0] {
	case recordHandshake:
		h, err := hello(r)
		return TLS, h, err
	case recordChangeCipher, recordAlert: // which some servers skip, and read a ClientHello then
		return TLS, Hello{}, errors.New("TLS that does not begin with a ClientHello")
	}
	for {
		if more := r.Buffered(); more > len(b) {
			b, _ = r.Peek(more)
		}
		switch kind, sure := words(b); {
		case sure && kind == TLS:
			return TLS, Hello{}, errOld
		case sure:
			return kind, Hello{}, nil
		}
		b, err = r.Peek(len(b) + 1)
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout():
			return Opaque, Hello{}, err
		case err != nil:
			return Opaque, Hello{}, nil // it ended before it was a request
		}
	}
}

// hello peeks at more and more of r until there is a whole ClientHello.
func hello(r *bufio.Reader) (Hello, error) {
	n := 5
	for {
		b, err := r.Peek(n)
		if err != nil {
			if errors.Is(err, bufio.ErrBufferFull) {
				err = errors.New("the ClientHello is too long")
			}
			return Hello{}, err
		}
		if more := r.Buffered(); more > n {
			b, _ = r.Peek(more)
		}
		h, err := parseHello(b)
		if !errors.Is(err, errShort) {
			return h, err
		}
		if len(b) >= BufferSize {
			return Hello{}, errors.New("the ClientHello is too long")
		}
		n = len(b) + 1
	}
}

// words says what b begins, which is no record of TLS. It is not sure while more bytes
// can still change that.
func words(b []byte) (kind Kind, sure bool) {
	if b[0] >= 0x80 {
		return old(b)
	}
	return request(b)
}

var errOld = errors.New("a ClientHello in the form of SSL 2, which names no server")

// old says whether b begins a ClientHello in the form of SSL 2 (RFC 5246, E.2) for a
// later version, which some servers still take.
func old(b []byte) (kind Kind, sure bool) {
	switch {
	case len(b) > 2 && b[2] != messageClientHello, len(b) > 3 && b[3] != 3: // the version's first half
		return Opaque, true
	}
	return TLS, len(b) > 3
}

// request says whether b begins an HTTP request: empty lines, which servers
// skip, a method, a blank, and a version at the end of the line. It is not sure
// while more bytes can still change that. Other protocols have lines of words,
// too; a request without a version (HTTP/0.9) has no headers that name a host.
func request(b []byte) (kind Kind, sure bool) {
	i := 0
	for i < len(b) && (b[i] == '\r' || b[i] == '\n' || b[i] == ' ' || b[i] == '\t') {
		i++
	}
	start := i
	for i < len(b) && token(b[i]) {
		i++
	}
	switch {
	case i == len(b):
		return HTTP, len(b) >= mostLine
	case i == start || b[i] != ' ' && b[i] != '\t':
		return Opaque, true
	}
	line, _, whole := bytes.Cut(b[i:], []byte("\n"))
	switch {
	case bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")):
		return HTTP, true
	case whole:
		return Opaque, true
	}
	return HTTP, len(b) >= mostLine
}

// token is a character of an HTTP method (RFC 9110, 5.6.2).
func token(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return false
}

// ErrLate says that what was passed on as words turned out to be more.
var ErrLate = errors.New("an HTTP request or TLS whose beginning came too slowly")

// Guard reads what First was not sure about, and stops before the byte that
// would make it an HTTP request, or TLS.
type Guard struct {
	R io.Reader

	seen []byte
	sure bool
}

func (g *Guard) Read(b []byte) (int, error) {
	n, err := g.R.Read(b)
	if g.sure {
		return n, err
	}
	g.seen = append(g.seen, b[:n]...)
	if len(g.seen) == 0 {
		return n, err
	}
	kind, sure := words(g.seen)
	if sure && kind != Opaque {
		return 0, ErrLate
	}
	if sure {
		g.sure, g.seen = true, nil
	}
	return n, err
}
