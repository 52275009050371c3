// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// rudeHeaders are of a program that answers for more than itself.
var rudeHeaders = map[string]string{
	"Cache-Control": "public, max-age=31536000", "CDN-Cache-Control": "max-age=31536000", "Surrogate-Control": "max-age=31536000", "Expires": "Fri, 01 Jan 2100 00:00:00 GMT",
	"Clear-Site-Data": `"*"`, "Strict-Transport-Security": "max-age=31536000; includeSubDomains", "Alt-Svc": `h2="evil.example:443"`,
	"Set-Cookie": "a=b; Domain=localhost; Path=/", "X-Sendfile": "/etc/shadow", "X-Accel-Redirect": "/internal/secrets", "X-Accel-Expires": "31536000", "X-Own": "kept",
}

// rude answers every request with these, before its answer and with it.
func rude(ln net.Listener) {
	head := ""
	for name, value := range rudeHeaders {
		head += name + ": " + value + "\r\n"
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer c.Close()
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				fmt.Fprintf(c, "HTTP/1.1 103 Early Hints\r\n%s\r\nHTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n%s\r\nok", head, head)
			}
		}()
	}
}

// What a program answers is for its client alone. It leaves nothing at this server's
// address, which it is asked at by header, in no browser and in no cache; and it gives
// no orders to a proxy in front.
func TestPortsAnswerForThemselves(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	port := d.listening(t, b, "rude")
	for _, c := range []struct {
		name, request, own string
		gone               []string
		cache, cookie      string
	}{
		{"by header", "GET /approvals/x HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: " + b.id + "\r\nE2b-Sandbox-Port: " + port, "kept",
			[]string{"Set-Cookie", "CDN-Cache-Control", "Surrogate-Control", "Expires", "Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "X-Sendfile", "X-Accel-Redirect", "X-Accel-Expires"}, "no-store", ""},
		{"by name", "GET / HTTP/1.1\r\nHost: " + port + "-" + b.id + ".localhost:1", "kept", []string{"X-Sendfile", "X-Accel-Redirect", "X-Accel-Expires"}, rudeHeaders["Cache-Control"], "a=b; Path=/"},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, c.request+"\r\nConnection: close\r\n\r\n")
		text, err := io.ReadAll(conn)
		conn.Close()
		if err != nil || strings.Count(string(text), "HTTP/1.1 ") != 1 {
			t.Errorf("%s: %v, more than one answer:\n%s", c.name, err, text)
		}
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(text))), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if h := resp.Header; resp.StatusCode != 200 || string(body) != "ok" || h.Get("X-Own") != c.own || h.Get("Cache-Control") != c.cache || h.Get("Set-Cookie") != c.cookie {
			t.Errorf("%s:\n%s", c.name, text)
		}
		for _, name := range c.gone {
			if v := resp.Header.Values(name); len(v) > 0 {
				t.Errorf("%s: %s is %q", c.name, name, v)
			}
		}
	}
}
