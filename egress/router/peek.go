// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"errors"
	"io"
	"net"
)

// The first bytes of a connection are looked at, without taking them, for a
// second place where a client names its host: TLS says it in the ClientHello,
// HTTP in every request. They are written by code that may be hostile. Where a
// lenient server could read something else than is read here, that is an error.

// Kind is what a connection speaks. The zero Kind is Opaque.
type Kind int

// The kinds.
const (
	Opaque Kind = iota // nothing that names a host
	TLS
	HTTP
)

// BufferSize is what a reader's buffer must hold at least, in bytes.
const BufferSize = maxHello + 1<<10

// Peek says what the client of r speaks, and for TLS what its ClientHello
// says. It reads until that is clear, at most BufferSize bytes, and leaves all
// of them in r, whose buffer must be that large. An error of the connection is
// returned as it is; io.EOF when not a byte came.
//
// When a deadline of the connection passes before it is clear, the error says
// so and the kind is Opaque: the caller then goes on with a Guard.
func Peek(r *bufio.Reader) (Kind, Hello, error) {
	b, err := r.Peek(1)
	if err != nil {
		return Opaque, Hello{}, err
	}
	switch b[0] {
	case recordHandshake:
		h, err := hello(r)
		return TLS, h, err
	case recordChangeCipher, recordAlert: // which some servers skip, and read a ClientHello then
		return TLS, Hello{}, errNoHello
	}
	for {
		if more := r.Buffered(); more > len(b) {
			b, _ = r.Peek(more)
		}
		if kind, sure, err := words(b); sure {
			return kind, Hello{}, err
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

// ErrLate says that what was passed on as words turned out to be more.
var ErrLate = errors.New("an HTTP request or TLS whose beginning came too slowly")

// Guard reads what First was not sure about, and stops before the byte that
// would make it an HTTP request, or TLS.
type Guard struct {
	R io.Reader

	seen []byte
	sure bool
}

// Read implements io.Reader.
func (g *Guard) Read(b []byte) (int, error) {
	n, err := g.R.Read(b)
	if g.sure {
		return n, err
	}
	g.seen = append(g.seen, b[:n]...)
	if len(g.seen) == 0 {
		return n, err
	}
	kind, sure, odd := words(g.seen)
	if sure && (kind != Opaque || odd != nil) {
		return 0, ErrLate
	}
	if sure {
		g.sure, g.seen = true, nil
	}
	return n, err
}
