// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// What comes after a body counts with it. Extensions of chunks do not arrive.
func TestTrailersCount(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"POST"}, MaxBody: 100}, handler: func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %q %v", b, r.Trailer.Get("X-Sum"), err)
	}})
	for _, two := range []bool{false, true} {
		for _, c := range []struct {
			body, sum int
			passes    bool
		}{{10, 4, true}, {86, 4, true}, {90, 4, false}, {10, 3000, false}, {1, 90, true}} {
			req := request(t, "POST", s.url("/"), io.MultiReader(strings.NewReader(strings.Repeat("a", c.body))))
			req.Trailer = http.Header{"X-Sum": {strings.Repeat("b", c.sum)}}
			status, body := ask(t, s.web(two), req)
			switch {
			case c.passes && (status != 200 || !strings.Contains(body, strings.Repeat("b", c.sum))):
				t.Errorf("two %v, %d and %d bytes: %d %s", two, c.body, c.sum, status, body)
			case !c.passes && (status == 200 || strings.Contains(body, "bbbb")):
				t.Errorf("two %v, %d and %d bytes pass: %d %s", two, c.body, c.sum, status, body)
			}
		}
	}
}

// What comes after a body is no other method, for servers that take it for headers.
func TestTrailersAreNoMethod(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"POST"}}, handler: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%q %q", r.Trailer.Get("X-Sum"), r.Trailer.Get("X-HTTP-Method-Override"))
	}})
	for _, two := range []bool{false, true} {
		req := request(t, "POST", s.url("/"), io.MultiReader(strings.NewReader("a")))
		req.Trailer = http.Header{"X-Sum": {"1"}, "X-Http-Method-Override": {"DELETE"}}
		if status, body := ask(t, s.web(two), req); status != 200 || body != `"1" ""` {
			t.Errorf("two %v: %d %s", two, status, body)
		}
	}
}

// A request about a whole server is one like others: judged, and answered by no other
// server.
func TestOptionsOfAServer(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"OPTIONS"}}, http1: true, handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", r.RequestURI)
	}})
	for host, want := range map[string]int{fmt.Sprintf("api.good.test:%d", s.port): 200, "evil.test": 403} {
		c := s.dialTLS(t)
		fmt.Fprintf(c, "OPTIONS * HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != want {
			t.Errorf("%s: %v, %v", host, res, err)
		}
		c.Close()
	}
}

// A host that opens a stream that was not asked for opens none: where max_body
// bounds what leaves, that would have no end.
func TestUnaskedUpgrade(t *testing.T) {
	got := make(chan string, 1)
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"GET"}, MaxBody: 10}, http1: true, handler: func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		b, _ := io.ReadAll(rw)
		got <- string(b)
	}})
	c := s.dialTLS(t)
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: api.good.test:%d\r\n\r\n", s.port)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode == http.StatusSwitchingProtocols {
		t.Errorf("%v, %v", res, err)
	}
	fmt.Fprint(c, strings.Repeat("a", 100))
	_ = c.CloseWrite()
	if b := <-got; strings.Contains(b, "aaaaaaaaaaa") {
		t.Errorf("the host got %q", b)
	}
}

// Streams of HTTP/2 that name another host, or are no request, on a connection whose
// first one was right.
func TestStreamsNameTheirHost(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Paths: []string{"/ok"}}})
	good := fmt.Sprintf("api.good.test:%d", s.port)
	for what, c := range map[string]struct {
		fields string // name value pairs, in the order of the wire
		passes bool
	}{
		"right":                     {":method GET :scheme https :authority GOOD :path /ok", true},
		"another host":              {":method GET :scheme https :authority evil.test :path /ok", false},
		"a host twice":              {":method GET :scheme https :authority GOOD :path /ok host evil.test", false},
		"a host that is no pseudo":  {":method GET :scheme https :path /ok host evil.test", false},
		"authority twice":           {":method GET :scheme https :authority GOOD :authority evil.test :path /ok", false},
		"another path in the path":  {":method GET :scheme https :authority GOOD :path https://evil.test/admin", false},
		"a host before it":          {":method GET :scheme https :authority evil.test@GOOD :path /ok", false},
		"a host after it":           {":method GET :scheme https :authority GOOD/evil.test :path /ok", false},
		"a tunnel":                  {":method CONNECT :authority GOOD", false},
		"an extended tunnel":        {":method CONNECT :protocol websocket :scheme https :authority GOOD :path /ok", false},
		"a header of the other one": {":method GET :scheme https :authority GOOD :path /ok upgrade websocket connection upgrade", false},
		"no method":                 {":scheme https :authority GOOD :path /ok", false},
	} {
		config := trust(s.ours)
		config.ServerName, config.NextProtos = "api.good.test", []string{"h2"}
		raw, err := s.guest.DialName("api.good.test", s.port)
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.SetDeadline(time.Now().Add(time.Minute))
		conn := tls.Client(raw, config)
		fmt.Fprint(conn, xhttp2.ClientPreface)
		f := xhttp2.NewFramer(conn, conn)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = f.WriteSettings()
		before := s.count()
		status := stream(t, f, 1, strings.ReplaceAll(":method GET :scheme https :authority GOOD :path /ok", "GOOD", good))
		if status != "200" {
			t.Fatalf("%s: the right one before it: %s", what, status)
		}
		status = stream(t, f, 3, strings.ReplaceAll(c.fields, "GOOD", good))
		if n := s.count() - before; (status == "200") != c.passes || n != 1 && !c.passes {
			t.Errorf("%s: %s, and the host got %d requests", what, status, n)
		}
		conn.Close()
		raw.Close()
	}
}

// Words that only some servers take for a request, or for a beginning before the
// beginning, reach none, or as a request that names its host.
func TestOddBeginnings(t *testing.T) {
	const rest = "Host: evil.test\r\n\r\n"
	for what, c := range map[string]struct{ said, answer, reason string }{
		"a vertical tab":       {"GET\v/\vHTTP/1.1\r\n" + rest, "400", ""},
		"a space of Latin 1":   {"\xa0GET / HTTP/1.1\r\n" + rest, "400", ""},
		"a carriage return":    {"GET\r/ HTTP/1.1\r\n" + rest, "400", ""},
		"an empty line":        {"\r\nGET / HTTP/1.1\r\n" + rest, "400", ""},
		"bare line feeds":      {"GET / HTTP/1.1\nHost: evil.test\n\n", "403", "evil.test"},
		"a folded host":        {"GET / HTTP/1.1\r\nHost:\r\n evil.test\r\n\r\n", "403", "evil.test"},
		"a PROXY header":       {"PROXY TCP4 127.0.0.1 127.0.0.1 1 443\r\nGET / HTTP/1.1\r\n" + rest, "", "PROXY"},
		"a binary one":         {"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00GET / HTTP/1.1\r\n" + rest, "", "PROXY"},
		"a heartbeat":          {"\x18\x03\x01\x00\x03\x01\x00\x00" + string(hidden("evil.test")), "", "ClientHello"},
		"another HTTP at once": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "403", ""},
	} {
		port, reached := heard(t)
		h := build(t, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
		conn, err := h.guest.DialName("good.test", port)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		fmt.Fprint(conn, c.said)
		b, err := io.ReadAll(conn)
		if isTimeout(err) || c.answer != "" && !strings.HasPrefix(string(b), "HTTP/1.1 "+c.answer) || c.answer == "" && len(b) > 0 {
			t.Errorf("%s: %q, %v", what, b, err)
		}
		if c.reason != "" {
			h.refused(c.reason)
		}
		conn.Close()
		if n := reached.Load(); n > 0 {
			t.Fatalf("%s: the server got %d bytes", what, n)
		}
		h.seen("the end", func(e wire.Event) bool { return e.Kind == wire.Connection && e.Record.Sent == 0 })
	}
}

// heard is a server that counts what it gets, in bytes.
func heard(t *testing.T) (port int, reached *atomic.Int64) {
	reached = new(atomic.Int64)
	return raw(t, func(c net.Conn) {
		n, _ := c.Read(make([]byte, 1<<10))
		reached.Add(int64(n))
	}), reached
}

// stream makes a request of HTTP/2 and gives the answer's status, or how it ended.
func stream(t *testing.T, f *xhttp2.Framer, id uint32, fields string) string {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for words := strings.Fields(fields); len(words) > 1; words = words[2:] {
		_ = e.WriteField(hpack.HeaderField{Name: words[0], Value: words[1]})
	}
	if err := f.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		return err.Error()
	}
	status := "none"
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch frame := frame.(type) {
		case *xhttp2.MetaHeadersFrame:
			if frame.StreamID == id {
				status = frame.PseudoValue("status")
			}
		case *xhttp2.RSTStreamFrame:
			return "reset " + frame.ErrCode.String()
		case *xhttp2.GoAwayFrame:
			return "away " + frame.ErrCode.String()
		}
		if h := frame.Header(); h.StreamID == id && h.Flags.Has(xhttp2.FlagDataEndStream) {
			return status
		}
	}
}
