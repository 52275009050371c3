// SPDX-License-Identifier: Apache-2.0

// Package fetch makes one HTTP request inside a sandbox, for a tool that a policy
// declares. The request goes through the sandbox's network like everything in it:
// what it may reach is decided there, and a value of a secret is nowhere here.
//
// The program is the agent's; [Word] as its first argument makes it this. It reads a
// [Request] from standard input and writes an [Answer] to standard output, both
// JSON. Whoever reads the answer reads what was made in a sandbox.
package fetch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Word is the argument that makes the program fetch.
const Word = "caisson-fetch"

// Request is what is to be asked.
type Request struct {
	Method    string   `json:"method"`
	URL       string   `json:"url"`
	Headers   []Header `json:"headers,omitempty"`
	Body      []byte   `json:"body,omitempty"`
	Max       int64    `json:"most"`    // bytes of the answer's body, unpacked
	Timeout   float64  `json:"timeout"` // seconds
	Redirects int      `json:"redirects,omitempty"`
}

// Header is a header. Parts are texts, and names of variables that stand for
// secrets.
type Header struct {
	Name  string `json:"name"`
	Parts []Part `json:"parts"`
}

// Part is a text, or a variable's name.
type Part struct {
	Text     string `json:"text,omitempty"`
	Variable string `json:"variable,omitempty"`
}

// Answer is what came back, or why nothing did.
type Answer struct {
	Problem string            `json:"problem,omitempty"`
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    []byte            `json:"body,omitempty"`
	Cut     bool              `json:"cut,omitempty"` // the body is longer
}

// Bounds of what is read and told.
const (
	maxRequest = 4 << 20
	maxHead    = 64 << 10
	maxValue   = 1 << 10
)

// told are the headers of an answer that callers are told of.
var told = []string{"Content-Type", "Location", "Retry-After", "Etag", "Last-Modified", "Link", "Content-Language", "X-Request-Id",
	"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}

// Init becomes a fetch, where the program was started as one, and does not return
// then.
func Init() {
	if len(os.Args) == 2 && os.Args[1] == Word {
		os.Exit(Main(os.Stdin, os.Stdout))
	}
}

// Main reads a request and answers it. It returns the exit code.
func Main(in io.Reader, out io.Writer) int {
	var r Request
	b, err := io.ReadAll(io.LimitReader(in, maxRequest+1))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	a := &Answer{}
	if err != nil {
		a.Problem = "the request cannot be read"
	} else {
		a = Do(context.Background(), &r)
	}
	if json.NewEncoder(out).Encode(a) != nil {
		return 1
	}
	return 0
}

// Do makes a request. It uses no proxy, keeps no cookie and no connection, and
// follows as many redirects as the request says; to another host the headers that
// have secrets do not go along.
func Do(ctx context.Context, r *Request) *Answer {
	ctx, stop := context.WithTimeout(ctx, time.Duration(r.Timeout*float64(time.Second)))
	defer stop()
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return &Answer{Problem: "the request cannot be made"}
	}
	var secret []string
	for _, h := range r.Headers {
		value := ""
		for _, p := range h.Parts {
			if p.Variable == "" {
				value += p.Text
				continue
			}
			have, ok := os.LookupEnv(p.Variable)
			if !ok {
				return &Answer{Problem: "the secret " + p.Variable + " is not there"}
			}
			value += have
			secret = append(secret, h.Name)
		}
		req.Header.Set(h.Name, value)
	}
	transport := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxHead, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if len(via) > r.Redirects {
			return http.ErrUseLastResponse
		}
		if first := via[0].URL; next.URL.Scheme != first.Scheme || next.URL.Host != first.Host {
			for _, name := range secret {
				next.Header.Del(name)
			}
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return &Answer{Problem: why(ctx, err)}
	}
	defer resp.Body.Close()
	return answer(ctx, r, resp)
}

func answer(ctx context.Context, r *Request, resp *http.Response) *Answer {
	a := &Answer{Status: resp.StatusCode, Headers: map[string]string{}}
	for _, name := range told {
		if v := resp.Header.Get(name); v != "" {
			a.Headers[strings.ToLower(name)] = v[:min(len(v), maxValue)]
		}
	}
	// What is packed is unpacked as it is read, and no further than this.
	body, err := io.ReadAll(io.LimitReader(resp.Body, r.Max+1))
	if err != nil {
		return &Answer{Problem: "the answer broke off: " + why(ctx, err)}
	}
	if a.Cut = int64(len(body)) > r.Max; a.Cut {
		body = body[:r.Max]
	}
	a.Body = body
	return a
}

// why is an error in words. Most are the network's, which has its own record.
func why(ctx context.Context, err error) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "no answer came in time"
	}
	var with *url.Error
	if errors.As(err, &with) {
		err = with.Err // the address has arguments
	}
	text := fmt.Sprint(err)
	return text[:min(len(text), 500)]
}
