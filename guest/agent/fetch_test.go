// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/guest/wire"
)

// fetched is the answer of a program that is given r.
func fetched(t *testing.T, r wire.FetchRequest) *wire.FetchAnswer {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := fetchMain(bytes.NewReader(b), &out); code != 0 {
		t.Fatal(code)
	}
	a := &wire.FetchAnswer{}
	if err := json.Unmarshal(out.Bytes(), a); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	return a
}

func TestFetch(t *testing.T) {
	t.Setenv("KEY", "caisson-secret-x")
	var other *httptest.Server
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Set-Cookie", "a=b")
			body := new(bytes.Buffer)
			body.ReadFrom(r.Body)
			fmt.Fprintf(w, "%s %s %s %s %s", r.Method, r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), body)
		case "/long":
			for range 100 {
				fmt.Fprint(w, strings.Repeat("x", 1000))
			}
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			zeros := make([]byte, 1<<20)
			for r.Context().Err() == nil { // it has no end
				if _, err := z.Write(zeros); err != nil {
					return
				}
				z.Flush()
			}
		case "/head":
			w.Header().Set("X-Long", strings.Repeat("x", maxFetchHead))
		case "/slow":
			<-r.Context().Done()
		case "/here":
			http.Redirect(w, r, "/echo", http.StatusFound)
		case "/there":
			http.Redirect(w, r, other.URL+"/other", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		}
	}))
	defer s.Close()
	other = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "other ", r.Header.Get("X-Key"))
	}))
	defer other.Close()
	key := []wire.FetchHeader{{Name: "X-Key", Parts: []wire.FetchPart{{Variable: "KEY"}}}}
	for name, c := range map[string]struct {
		r      wire.FetchRequest
		status int
		says   string // of the body, or of the problem
		cut    bool
	}{
		"all of it": {wire.FetchRequest{Method: "POST", URL: "/echo?a=%2F", Body: []byte("hi"), Headers: []wire.FetchHeader{{Name: "Authorization", Parts: []wire.FetchPart{{Text: "Bearer "}, {Variable: "KEY"}}}, {Name: "Content-Type", Parts: []wire.FetchPart{{Text: "x/y"}}}}}, 200,
			"POST /echo?a=%2F Bearer caisson-secret-x x/y hi", false},
		"no secret":           {wire.FetchRequest{Method: "GET", URL: "/echo", Headers: []wire.FetchHeader{{Name: "X", Parts: []wire.FetchPart{{Variable: "NONE"}}}}}, 0, "NONE is not there", false},
		"long":                {wire.FetchRequest{Method: "GET", URL: "/long"}, 200, strings.Repeat("x", 1<<10), true},
		"packed":              {wire.FetchRequest{Method: "GET", URL: "/bomb"}, 200, strings.Repeat("\x00", 1<<10), true},
		"a long head":         {wire.FetchRequest{Method: "GET", URL: "/head"}, 0, "exceeded", false},
		"slow":                {wire.FetchRequest{Method: "GET", URL: "/slow", Timeout: 0.05}, 0, "in time", false},
		"a line in a header":  {wire.FetchRequest{Method: "GET", URL: "/echo", Headers: []wire.FetchHeader{{Name: "X", Parts: []wire.FetchPart{{Text: "a\r\nHost: evil"}}}}}, 0, "invalid header", false},
		"redirect, not taken": {wire.FetchRequest{Method: "GET", URL: "/here"}, 302, "Found", false},
		"redirect":            {wire.FetchRequest{Method: "GET", URL: "/here", Redirects: 1}, 200, "GET /echo", false},
		"redirect elsewhere":  {wire.FetchRequest{Method: "GET", URL: "/there", Redirects: 1, Headers: key}, 200, "other ", false},
		"redirects":           {wire.FetchRequest{Method: "GET", URL: "/round", Redirects: 3}, 302, "Found", false},
		"another scheme":      {wire.FetchRequest{Method: "GET", URL: "file:///etc/passwd"}, 0, "unsupported protocol", false},
	} {
		if c.r.Max = 1 << 10; c.r.Timeout == 0 {
			c.r.Timeout = 30
		}
		if strings.HasPrefix(c.r.URL, "/") {
			c.r.URL = s.URL + c.r.URL
		}
		a := fetched(t, c.r)
		if text := a.Problem + string(a.Body); a.Status != c.status || !strings.Contains(text, c.says) || a.Cut != c.cut || len(a.Body) > 1<<10 || a.Headers["set-cookie"] != "" {
			t.Errorf("%s: %d %.200q %v %v", name, a.Status, text, a.Cut, a.Headers)
		}
		if name == "redirect elsewhere" && string(a.Body) != "other " {
			t.Errorf("the secret's header goes elsewhere: %s", a.Body)
		}
	}
	if a := fetched(t, wire.FetchRequest{}); a.Problem == "" {
		t.Errorf("%+v", a)
	}
}
