// SPDX-License-Identifier: Apache-2.0

package router

import (
	"io"
	"net"
	"testing"
)

// BenchmarkDownload moves 64 MiB from a server through the router into a guest's
// stack, both in this process.
func BenchmarkDownload(b *testing.B) {
	const size = 64 << 20
	port := raw(b, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		chunk := make([]byte, 256<<10)
		for range size / len(chunk) {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	})
	h := build(b, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	b.SetBytes(size)
	for b.Loop() {
		c, err := h.guest.DialName("good.test", port)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = c.Write([]byte{0})
		if n, err := io.CopyBuffer(io.Discard, onlyReader{c}, make([]byte, 256<<10)); n != size {
			b.Fatal(n, err)
		}
		c.Close()
	}
}

// BenchmarkConnect makes a connection to an allowed host, with one byte there
// and back.
func BenchmarkConnect(b *testing.B) {
	port := raw(b, echo)
	h := build(b, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
	for b.Loop() {
		c, err := h.guest.DialName("good.test", port)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = c.Write([]byte{0})
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
