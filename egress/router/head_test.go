// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/caisson-run/caisson/egress/wire"
)

// written keeps what a server would get, and gives no answer.
type written struct{ bytes.Buffer }

var errWritten = errors.New("it is written")

func (w *written) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Write(&w.Buffer); err != nil {
		return nil, err
	}
	return nil, errWritten
}

// FuzzHead: what a server gets of a request is one request, for the host that was
// connected to, whatever code inside wrote.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"POST /a?b=c HTTP/1.1\r\nHost: GOOD.test.:80\r\nContent-Length: 2\r\n\r\nab",
		"POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
		"GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "GET x:http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"CONNECT evil.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n", "GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n",
		"GET //evil.test/ HTTP/1.1\r\nHost: good.test\r\nConnection: Host\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: good.test\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "GET / HTTP/1.1\r\nHost: good.test\x00.evil.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	r := &Router{o: Options{Own: func(netip.Addr) bool { return false }}, web: &http.Server{ErrorLog: log.New(io.Discard, "", 0)}, record: newRecorder(func(wire.Event) {})}
	r.rules.Store(rules(f, []string{"good.test:80"}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil || !served(req) {
			return // net/http's server answers 400
		}
		c := &conn{r: r, t: target{name: parseName(t, "good.test"), addr: netip.MustParseAddrPort("198.18.1.0:80")}}
		w, got := c.newWeb(), &written{}
		w.proxy.Transport = got
		serveRequest(httptest.NewRecorder(), req.WithContext(context.WithValue(context.Background(), webKey{}, w)))
		if got.Len() == 0 {
			return // refused
		}
		text := got.String()
		rest := bufio.NewReader(&got.Buffer)
		again, err := http.ReadRequest(rest)
		if err != nil {
			if again == nil && strings.Contains(text, "\r\n\r\n") {
				t.Fatalf("%q became %q, which cannot be read: %v", b, text, err)
			}
			return // a body that was broken off
		}
		host := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(again.Host), ":80"), ".")
		if head, _, _ := strings.Cut(text, "\r\n\r\n"); host != "good.test" || strings.Count(strings.ToLower(head), "\r\nhost:") != 1 {
			t.Fatalf("%q is a request for %q: %q", b, again.Host, text)
		}
		if again.Method == http.MethodConnect || again.URL.Scheme != "" || again.URL.Host != "" && !strings.HasPrefix(again.RequestURI, "/") {
			t.Fatalf("%q has the target %q", b, again.RequestURI)
		}
		if _, err := io.Copy(io.Discard, again.Body); err != nil {
			return // broken off, and the connection with it
		}
		if left, _ := io.ReadAll(rest); len(left) > 0 {
			t.Fatalf("%q is followed by %q", b, left)
		}
	})
}

// served says of a request what net/http's server looks for after it has read it.
func served(req *http.Request) bool {
	if req.ProtoMajor != 1 || !httpguts.ValidHostHeader(req.Host) {
		return false
	}
	for key, values := range req.Header {
		for _, v := range values {
			if !httpguts.ValidHeaderFieldName(key) || !httpguts.ValidHeaderFieldValue(v) {
				return false
			}
		}
	}
	return true
}
