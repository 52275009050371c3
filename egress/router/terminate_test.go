// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// The matrix of judged requests, with both versions of HTTP.
func TestJudged(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"GET", "POST"}, Paths: []string{"/repos/**"}, MaxBody: 100}})
	for _, two := range []bool{false, true} {
		client := s.web(two)
		for what, c := range map[string]struct {
			method, path string
			body         io.Reader
			change       func(*http.Request)
			want         string // of the reason; "" is through
		}{
			"allowed":               {"GET", "/repos/a?q=1", nil, nil, ""},
			"HEAD":                  {"HEAD", "/repos/a", nil, nil, ""},
			"a body":                {"POST", "/repos/a", strings.NewReader(strings.Repeat("a", 100)), nil, ""},
			"a body without length": {"POST", "/repos/a", io.MultiReader(strings.NewReader(strings.Repeat("a", 100))), nil, ""},
			"another method":        {"DELETE", "/repos/a", nil, nil, `"DELETE" is not one of GET POST`},
			"another path":          {"GET", "/user", nil, nil, "path is not among"},
			"upwards":               {"GET", "/repos/../user", nil, nil, "dots"},
			"upwards, encoded":      {"GET", "/repos/%2e%2e/user", nil, nil, "dots"},
			"upwards with a blank":  {"GET", "/repos/..%20/user", nil, nil, "dots"},
			"upwards, cut off":      {"GET", "/repos/..%23/user", nil, nil, "dots"},
			"upwards, wide dots":    {"GET", "/repos/%ef%bc%8e%ef%bc%8e/user", nil, nil, "dots"},
			"a slash, encoded":      {"GET", "/repos/..%2fuser", nil, nil, "encoded '/'"},
			"encoded twice":         {"GET", "/repos/%252e%252e/user", nil, nil, "twice"},
			"an empty part":         {"GET", "//repos/a", nil, nil, "empty part"},
			"too long":              {"POST", "/repos/a", strings.NewReader(strings.Repeat("a", 101)), nil, "more than 100 bytes"},
			"too long, not said":    {"POST", "/repos/a", io.MultiReader(strings.NewReader(strings.Repeat("a", 5000))), nil, "more than 100 bytes"},
			"another host":          {"GET", "/repos/a", nil, func(r *http.Request) { r.Host = "evil.test" }, "names"},
			"another port":          {"GET", "/repos/a", nil, func(r *http.Request) { r.Host = "api.good.test:1" }, "another port"},
			"a method in a header":  {"GET", "/repos/a", nil, func(r *http.Request) { r.Header.Set("X-HTTP-Method-Override", "DELETE") }, "another method"},
			"a path in a header":    {"GET", "/repos/a", nil, func(r *http.Request) { r.Header.Set("X-Original-URL", "/user") }, "another method or path"},
		} {
			req := request(t, c.method, s.url(c.path), c.body)
			req.Header.Set("X-Case", what)
			if c.change != nil {
				c.change(req)
			}
			status, body := ask(t, client, req)
			var r Refusal
			_ = json.Unmarshal([]byte(body), &r)
			switch {
			case c.want == "" && (status != 200 || c.method != "HEAD" && !strings.HasPrefix(body, map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[two])):
				t.Errorf("two %v, %s: %d %s", two, what, status, body)
			case c.want != "" && (status != 403 || r.Error != "egress_denied" || !strings.Contains(r.Reason, c.want)):
				t.Errorf("two %v, %s: %d %s, want %q", two, what, status, body, c.want)
			case c.want != "" && s.reached(what) && what != "too long, not said":
				t.Errorf("two %v, %s: the server got it", two, what)
			}
		}
	}
	e := s.refused(`"DELETE" is not`)
	if e.From != "policy.yaml:3" || e.Method != "DELETE" || e.Path != "/repos/a" || !strings.Contains(e.Entry(), `methods: ["DELETE"], paths: ["/repos/a"]`) {
		t.Errorf("%+v", e)
	}
}

// Requests beyond an entry's budget reach no server, also those that come at once,
// under other rules with that entry, and by a new connection.
func TestRequestBudget(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"GET"}, MaxRequests: 5}})
	client := s.web(true)
	var through, spent atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			switch status, body := ask(t, client, request(t, "GET", s.url("/"), nil)); {
			case status == 200:
				through.Add(1)
			case status == 429 && strings.Contains(body, "budget of 5 requests is used up"):
				spent.Add(1)
			default:
				t.Errorf("%d %s", status, body)
			}
		})
	}
	all.Wait()
	if through.Load() != 5 || spent.Load() != 15 {
		t.Errorf("%d are through, %d refused", through.Load(), spent.Load())
	}
	if e := s.refused("used up"); e.From != "policy.yaml:3" || e.Open {
		t.Errorf("%+v", e)
	}
	rules := *s.r.rules.Load()
	s.r.Change(&rules, s.r.ends.Load())
	if status, _ := ask(t, s.web(false), request(t, "GET", s.url("/"), nil)); status != 429 {
		t.Errorf("after a change: %d", status)
	}
	if status, _ := ask(t, client, request(t, "POST", s.url("/"), nil)); status != 403 {
		t.Errorf("what is refused anyway: %d", status)
	}
}

// The matrix of hosts whose TLS is ended, or not, and of those that cannot be
// trusted.
func TestEnded(t *testing.T) {
	get := rule.Web{Methods: []string{"GET"}}
	for what, c := range map[string]struct {
		o    secureOptions
		host string
		ours bool   // the client trusts our authority, else the world's
		want string // a part of the answer, or of the error
	}{
		"ended":               {secureOptions{web: get}, "api.good.test", true, "HTTP/2.0 GET"},
		"ended, not by us":    {secureOptions{web: get}, "api.good.test", false, "certificate signed by unknown authority"},
		"left alone":          {secureOptions{web: get}, "plain.good.test", false, "HTTP/2.0 GET"},
		"left alone, not us":  {secureOptions{web: get}, "plain.good.test", true, "certificate signed by unknown authority"},
		"an unknown host CA":  {secureOptions{web: get, wrongCA: true}, "api.good.test", true, "its certificate is not trusted"},
		"another host's name": {secureOptions{web: get, cert: "other.good.test"}, "api.good.test", true, "not api.good.test"},
		"HTTP/1.1 alone":      {secureOptions{web: get, http1: true}, "api.good.test", true, "HTTP/1.1 GET"},
	} {
		t.Run(what, func(t *testing.T) {
			s := secured(t, c.o)
			client := s.web(true)
			if !c.ours {
				client.Transport.(*http.Transport).TLSClientConfig = trust(s.internet)
			}
			_, body := ask(t, client, request(t, "GET", fmt.Sprintf("https://%s:%d/", c.host, s.port), nil))
			if !strings.Contains(body, c.want) {
				t.Errorf("%s; want %s", body, c.want)
			}
			if (c.o.wrongCA || c.o.cert != "") && s.count() != 0 {
				t.Error("the server got a request")
			}
		})
	}
}

// The matrix of where a secret shows up, and of other credentials.
func TestSecrets(t *testing.T) {
	secret := wire.Secret{Name: "KEY", Placeholder: placeholder, Value: realValue, Hosts: []string{"api.good.test:*"}}
	s := secured(t, secureOptions{secrets: []wire.Secret{secret}, handler: func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", r.URL, r.Header, b, r.Trailer)
	}})
	plainPort := raw(t, func(c net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		s.mu.Lock()
		s.seen = append(s.seen, req)
		s.mu.Unlock()
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
	})
	for _, two := range []bool{false, true} {
		client := s.web(two)
		other := s.web(two)
		other.Transport.(*http.Transport).TLSClientConfig = trust(s.internet)
		bearer := func(v string) func(*http.Request) {
			return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+v) }
		}
		for what, c := range map[string]struct {
			client *http.Client
			url    string
			change func(*http.Request)
			want   string // in the Authorization that arrives; "!" is refused
		}{
			"its host and header": {client, s.url("/"), bearer(placeholder), "Bearer " + realValue},
			"another header":      {client, s.url("/"), func(r *http.Request) { r.Header.Set("X-Note", placeholder) }, ""},
			"the path":            {client, s.url("/" + placeholder + "?key=" + placeholder), nil, ""},
			"another host":        {other, fmt.Sprintf("https://plain.good.test:%d/", s.port), bearer(placeholder), "Bearer " + placeholder},
			"plain HTTP":          {client, fmt.Sprintf("http://api.good.test:%d/", plainPort), bearer(placeholder), "!"},
			"plain, another host": {client, fmt.Sprintf("http://plain.good.test:%d/", plainPort), bearer(placeholder), "Bearer " + placeholder},
			"a wrong Host":        {client, s.url("/"), func(r *http.Request) { bearer(placeholder)(r); r.Host = "evil.test" }, "!"},
			"somebody's":          {client, s.url("/"), bearer("theirs"), "!"},
			"somebody's in plain": {client, fmt.Sprintf("http://api.good.test:%d/", plainPort), bearer("theirs"), "!"},
			"somebody's key":      {client, s.url("/"), func(r *http.Request) { r.Header.Set("X-Api-Key", "theirs") }, "!"},
			"somebody's protocol": {client, s.url("/"), func(r *http.Request) {
				r.Header.Set("Sec-WebSocket-Protocol", "realtime, openai-insecure-api-key.theirs")
			}, "!"},
			"a protocol": {client, s.url("/"), func(r *http.Request) { r.Header.Set("Sec-WebSocket-Protocol", "realtime") }, ""},
			"none":       {client, s.url("/"), nil, ""},
			"a cookie":   {client, s.url("/"), func(r *http.Request) { r.Header.Set("Cookie", "a=theirs") }, ""},
			"after the body": {client, s.url("/"), func(r *http.Request) {
				r.Trailer = http.Header{"X-Api-Key": {"theirs"}}
				r.Body = io.NopCloser(strings.NewReader("a"))
				r.ContentLength = -1
			}, ""},
		} {
			before := s.count()
			body := strings.NewReader("body " + placeholder)
			req := request(t, "POST", c.url, body)
			if c.change != nil {
				c.change(req)
			}
			status, answer := ask(t, c.client, req)
			if strings.Contains(answer, realValue) {
				t.Errorf("two %v, %s: the answer shows the secret: %s", two, what, answer)
			}
			if c.want == "!" {
				if status != 403 || s.count() != before {
					t.Errorf("two %v, %s: %d %s", two, what, status, answer)
				}
				continue
			}
			got := s.got()
			if status != 200 || s.count() != before+1 || got.Header.Get("Authorization") != c.want || got.Header.Get("Cookie") != "" {
				t.Errorf("two %v, %s: %d %s; %v", two, what, status, answer, got)
				continue
			}
			delete(got.Header, "Authorization")
			if all := fmt.Sprint(got.URL, got.Header, answer); strings.Contains(all, realValue) || strings.Contains(all, "theirs") {
				t.Errorf("two %v, %s: %s", two, what, all)
			}
		}
	}
	if told := s.told(); strings.Contains(told, realValue) || strings.Contains(told, "theirs") {
		t.Errorf("it is told: %s", told)
	}
}

// What a host repeats is covered, also where it was to be compressed.
func TestEchoedSecret(t *testing.T) {
	secret := wire.Secret{Name: "KEY", Placeholder: placeholder, Value: realValue, Hosts: []string{"api.good.test:*"}}
	s := secured(t, secureOptions{secrets: []wire.Secret{secret}, handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		fmt.Fprintf(w, "%q: invalid key %s", r.Header.Get("Accept-Encoding"), r.Header.Get("Authorization"))
	}})
	req := request(t, "GET", s.url("/"), nil)
	req.Header.Set("Authorization", "Bearer "+placeholder)
	res, err := s.web(true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	stars := strings.Repeat("*", len(realValue))
	if string(b) != `"identity": invalid key Bearer `+stars || res.Header.Get("X-Echo") != "Bearer "+stars {
		t.Errorf("%s, %v", b, res.Header)
	}
}

// Nor does it show in what comes before an answer and after it, and in what is
// said of one that cannot be read.
func TestEchoAround(t *testing.T) {
	secret := wire.Secret{Name: "KEY", Placeholder: placeholder, Value: realValue, Hosts: []string{"api.good.test:*"}}
	stars := strings.Repeat("*", len(realValue))
	for _, two := range []bool{false, true} {
		s := secured(t, secureOptions{http1: !two, secrets: []wire.Secret{secret}, handler: func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Authorization")
			if r.URL.Path == "/broken" {
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				fmt.Fprintf(c, "%s\r\n\r\n", key)
				c.Close()
				return
			}
			w.Header().Set("Link", key)
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.Header().Set("Trailer", "Grpc-Message")
			fmt.Fprint(w, "ok")
			w.Header().Set("Grpc-Message", "no such key: "+key)
		}})
		var hint string
		req := request(t, "GET", s.url("/"), nil)
		req.Header.Set("Authorization", "Bearer "+placeholder)
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { hint = h.Get("Link"); return nil },
		}))
		res, err := s.web(two).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(res.Body); string(b) != "ok" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		res.Body.Close()
		if got := res.Trailer.Get("Grpc-Message"); hint != "Bearer "+stars || got != "no such key: Bearer "+stars {
			t.Errorf("two %v: before the answer %q, after it %q", two, hint, got)
		}
		if two {
			continue
		}
		req = request(t, "GET", s.url("/broken"), nil)
		req.Header.Set("Authorization", "Bearer "+placeholder)
		if status, body := ask(t, s.web(two), req); status != http.StatusBadGateway || !strings.Contains(body, stars) {
			t.Errorf("%d %s", status, body)
		}
	}
}

// Answers and requests flow while the other side still speaks; what comes after
// them comes, too.
func TestStreams(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"POST"}}, handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-After")
		_ = http.NewResponseController(w).EnableFullDuplex()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			fmt.Fprint(w, "got "+line)
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("X-After", "the end "+r.Trailer.Get("X-Sum"))
	}})
	pr, pw := io.Pipe()
	req := request(t, "POST", s.url("/"), pr)
	req.Trailer = http.Header{"X-Sum": nil}
	go func() { fmt.Fprint(pw, "one\n") }()
	res, err := s.web(true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	for _, next := range []string{"two", "three", ""} {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if next != "" {
			fmt.Fprint(pw, next+"\n")
			continue
		}
		if line != "got three\n" {
			t.Errorf("%q", line)
		}
		req.Trailer.Set("X-Sum", "42")
		pw.Close()
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) != 0 || res.Trailer.Get("X-After") != "the end 42" {
		t.Errorf("%q, %v, %v", rest, err, res.Trailer)
	}
}

// A client that asks before it sends its body is answered by the host, not by us.
func TestExpect(t *testing.T) {
	read := make(chan bool, 1)
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"POST"}, MaxBody: 100}, http1: true, handler: func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized) // without reading, and so without "Continue"
	}})
	client := s.web(false)
	client.Transport.(*http.Transport).ExpectContinueTimeout = 20 * time.Second
	req := request(t, "POST", s.url("/"), readFunc(func([]byte) (int, error) { read <- true; return 0, io.EOF }))
	req.Header.Set("Expect", "100-continue")
	if status, body := ask(t, client, req); status != http.StatusUnauthorized {
		t.Errorf("%d %s", status, body)
	}
	select {
	case <-read:
		t.Error("the body was asked for")
	default:
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// dialTLS is a connection of TLS from inside.
func (s *secure) dialTLS(t testing.TB) *tls.Conn {
	t.Helper()
	c, err := s.guest.DialName("api.good.test", s.port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	config := trust(s.ours)
	config.ServerName = "api.good.test"
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	conn := tls.Client(c, config)
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A stream is let through where the rule allows its request, and only there.
func TestUpgrade(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Paths: []string{"/live"}}, http1: true, handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		line, _ := rw.ReadString('\n')
		fmt.Fprint(c, "echo "+line)
	}})
	for path, want := range map[string]string{"/live": "101", "/other": "426"} {
		c := s.dialTLS(t)
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: api.good.test:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", path, s.port)
		in := bufio.NewReader(c)
		res, err := http.ReadResponse(in, nil)
		if err != nil || !strings.HasPrefix(res.Status, want) {
			t.Fatalf("%s: %v, %v", path, res, err)
		}
		if want == "101" {
			fmt.Fprint(c, "hello\n")
			if line, err := in.ReadString('\n'); line != "echo hello\n" {
				t.Errorf("%q, %v", line, err)
			}
		}
		c.Close()
	}
}

// A stream whose request is not allowed any more is closed when the rules change,
// one whose request still is stays.
func TestChangeUnderWay(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Paths: []string{"/live", "/other"}}, http1: true, handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		echo(c)
	}})
	open := map[string]net.Conn{}
	for _, path := range []string{"/live", "/other"} {
		c := s.dialTLS(t)
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: api.good.test:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", path, s.port)
		if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", res, err)
		}
		open[path] = c
	}
	now := rules(t, []string{"*.good.test:*", "127.0.0.1:*"}, nil)
	now.Web = s.layers(t, secureOptions{web: rule.Web{Paths: []string{"/live"}}})
	s.r.Change(now, s.ends(t, nil))
	fmt.Fprintln(open["/other"], "hello")
	if line, err := says(open["/other"]); err == nil || isTimeout(err) {
		t.Errorf("what is not allowed any more stays open: %q, %v", line, err)
	}
	fmt.Fprintln(open["/live"], "hello")
	if line, err := says(open["/live"]); line != "hello" {
		t.Errorf("what is still allowed was closed: %q, %v", line, err)
	}
}

// What two readers could take for another number of requests reaches the host as
// one, or not at all.
func TestSmuggling(t *testing.T) {
	s := secured(t, secureOptions{web: rule.Web{Methods: []string{"POST"}, Paths: []string{"/ok"}}, http1: true})
	head := fmt.Sprintf("POST /ok HTTP/1.1\r\nHost: api.good.test:%d\r\n", s.port)
	inner := fmt.Sprintf("GET /admin HTTP/1.1\r\nHost: api.good.test:%d\r\n\r\n", s.port)
	for what, bytes := range map[string]string{
		"length and chunks":     head + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 5+len(inner)) + inner,
		"two lengths":           head + fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n\r\n", len(inner)) + inner,
		"an odd encoding":       head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
		"an encoding in spaces": head + "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + inner,
		"a folded line":         head + "X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + inner,
		"a bare line feed":      head + "X: a\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + inner,
		"an odd chunk":          head + "Transfer-Encoding: chunked\r\n\r\n0;\n\r\n\r\n" + inner,
		"one after the other":   head + "Content-Length: 2\r\n\r\nok" + inner,
	} {
		c := s.dialTLS(t)
		fmt.Fprint(c, bytes)
		_ = c.CloseWrite()
		_, _ = io.ReadAll(c)
		c.Close()
		s.mu.Lock()
		for _, r := range s.seen {
			if r.Method != "POST" || r.URL.Path != "/ok" {
				t.Errorf("%s: the host got %s %s", what, r.Method, r.URL)
			}
		}
		s.mu.Unlock()
	}
	if s.count() == 0 {
		t.Error("not one request went through")
	}
}
