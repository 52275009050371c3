// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/caisson-run/caisson/egress/rule"
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

// BenchmarkTerminated makes a connection whose TLS is ended, for one request, and
// BenchmarkWhole the same one where it is not.
func BenchmarkTerminated(b *testing.B) { benchmarkTLS(b, "api.good.test") }

func BenchmarkWhole(b *testing.B) { benchmarkTLS(b, "plain.good.test") }

func benchmarkTLS(b *testing.B, host string) {
	s := secured(b, secureOptions{http1: true, web: rule.Web{Methods: []string{"GET"}}, handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }})
	for b.Loop() {
		c, err := s.guest.DialName(host, s.port)
		if err != nil {
			b.Fatal(err)
		}
		t := tls.Client(c, &tls.Config{ServerName: host, InsecureSkipVerify: true})
		if _, err := io.WriteString(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
			b.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(t), nil)
		if err != nil || res.StatusCode != http.StatusOK && host == "api.good.test" {
			b.Fatal(res, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		t.Close()
	}
}
