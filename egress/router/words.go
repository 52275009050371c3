// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"errors"
)

// maxLine bounds the first line of an HTTP request, in bytes, with empty lines
// before it. What begins like one and is longer is taken for one.
const maxLine = 8 << 10

var (
	errOld     = errors.New("a ClientHello in the form of SSL 2, which names no server")
	errNoHello = errors.New("TLS that does not begin with a ClientHello")
	errProxy   = errors.New("a header of the PROXY protocol, behind which another name could stand")
)

// words says what b begins, which is no record of TLS that speaks for itself by its
// first byte. It is not sure while more bytes can still change that. An error is about
// what leads some servers to a name that is not seen here.
func words(b []byte) (kind Kind, sure bool, err error) {
	switch {
	case bytes.HasPrefix(b, proxy2):
		return Opaque, true, errProxy
	case b[0] == recordData || b[0] == recordHeartbeat:
		return tooEarly(b)
	case b[0] >= 0x80:
		if kind, sure, err = old(b); !sure || err != nil || !blank(b[0]) {
			return kind, sure, err
		}
	}
	return beginsRequest(b)
}

// tooEarly says whether b begins a record of TLS. Those that come too early are dropped
// by some servers, which read a ClientHello then.
func tooEarly(b []byte) (kind Kind, sure bool, err error) {
	switch {
	case len(b) > 1 && b[1] != 3, len(b) > 2 && b[2] > 4: // 3.0 to 3.4 are the versions
		return Opaque, true, nil
	case len(b) < 3:
		return TLS, false, nil
	}
	return TLS, true, errNoHello
}

// old says whether b begins a ClientHello in the form of SSL 2 (RFC 5246, E.2) for a
// later version, which some servers still take.
func old(b []byte) (kind Kind, sure bool, err error) {
	switch {
	case len(b) > 2 && b[2] != messageClientHello, len(b) > 3 && b[3] != 3: // the version's first half
		return Opaque, true, nil
	case len(b) < 4:
		return TLS, false, nil
	}
	return TLS, true, errOld
}

// How a header of the PROXY protocol begins, in its two versions. What follows one is
// the beginning of another connection, to servers that take it.
var (
	proxy1 = []byte("PROXY")
	proxy2 = []byte("\r\n\r\n\x00")
)

// beginsRequest says whether b begins an HTTP request: empty lines, which servers
// skip, a method, a blank, and a version at the end of the line. It is not sure
// while more bytes can still change that. Other protocols have lines of words,
// too; a request without a version (HTTP/0.9) has no headers that name a host.
func beginsRequest(b []byte) (kind Kind, sure bool, err error) {
	i := 0
	for i < len(b) && (b[i] == '\n' || blank(b[i])) {
		i++
	}
	start := i
	for i < len(b) && token(b[i]) {
		i++
	}
	method := b[start:i]
	switch {
	case i == len(b):
		return HTTP, len(b) >= maxLine, nil
	case i == start || !blank(b[i]) || !usual(b[i]) && !verb(method):
		return Opaque, true, nil
	}
	line, _, whole := bytes.Cut(b[i:], []byte("\n"))
	switch {
	case version(line):
		return HTTP, true, nil
	case whole && bytes.Equal(method, proxy1):
		return Opaque, true, errProxy
	case whole:
		return Opaque, true, nil
	}
	return HTTP, len(b) >= maxLine, nil
}

// version reports whether a line has the beginning of a version of HTTP. It is asked
// again with every byte that comes.
func version(line []byte) bool {
	for {
		before, after, found := bytes.Cut(line, []byte("/"))
		if !found {
			return false
		}
		if n := len(before); n >= len(protocol) && bytes.EqualFold(before[n-len(protocol):], protocol) {
			return true
		}
		line = after
	}
}

var protocol = []byte("HTTP")

// blank is what some server takes for a space, before a method or after it: that of
// Python's library for all that str.split does.
func blank(c byte) bool {
	return usual(c) || c == '\v' || c == '\f' || 0x1c <= c && c <= 0x1f || c == 0x85 || c == 0xa0
}

func usual(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// verb is a method that a server may know. Lengths in other protocols look like an odd
// blank after a character, and who speaks them should not wait.
func verb(method []byte) bool {
	for _, c := range method {
		if c |= 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return len(method) > 2
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
