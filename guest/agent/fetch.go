// SPDX-License-Identifier: Apache-2.0

package agent

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

	"github.com/caisson-run/caisson/guest/wire"
)

// Bounds of what is read and told.
const (
	maxFetchRequest = 4 << 20
	maxFetchHead    = 64 << 10
	maxFetchValue   = 1 << 10
)

// fetchedHeaders are the headers of an answer that callers are told of.
var fetchedHeaders = []string{"Content-Type", "Location", "Retry-After", "Etag", "Last-Modified", "Link", "Content-Language", "X-Request-Id",
	"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}

// InitFetch has the program make one HTTP request for a tool that a policy declares, where
// it was started for that, and does not return then. It reads a [wire.FetchRequest] from
// standard input and writes a [wire.FetchAnswer] to standard output, both JSON.
//
// The request goes through the sandbox's network: what it may reach is decided there, and
// no value of a secret is in the sandbox. The reader of the answer must not trust it.
func InitFetch() {
	if len(os.Args) == 2 && os.Args[1] == wire.FetchWord {
		os.Exit(fetchMain(os.Stdin, os.Stdout))
	}
}

// fetchMain reads a request and answers it. It returns the exit code.
func fetchMain(in io.Reader, out io.Writer) int {
	var r wire.FetchRequest
	b, err := io.ReadAll(io.LimitReader(in, maxFetchRequest+1))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	a := &wire.FetchAnswer{}
	if err != nil {
		a.Problem = "the request cannot be read"
	} else {
		a = fetch(context.Background(), &r)
	}
	if json.NewEncoder(out).Encode(a) != nil {
		return 1
	}
	return 0
}

// fetch makes a request. It uses no proxy, keeps no cookie and no connection, and
// follows as many redirects as the request says; to another host the headers that
// have secrets do not go along.
func fetch(ctx context.Context, r *wire.FetchRequest) *wire.FetchAnswer {
	ctx, stop := context.WithTimeout(ctx, time.Duration(r.Timeout*float64(time.Second)))
	defer stop()
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return &wire.FetchAnswer{Problem: "the request cannot be made"}
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
				return &wire.FetchAnswer{Problem: "the secret " + p.Variable + " is not there"}
			}
			value += have
			secret = append(secret, h.Name)
		}
		req.Header.Set(h.Name, value)
	}
	transport := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxFetchHead, ForceAttemptHTTP2: true}
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
		return &wire.FetchAnswer{Problem: fetchProblem(ctx, err)}
	}
	defer resp.Body.Close()
	return fetchAnswer(ctx, r, resp)
}

func fetchAnswer(ctx context.Context, r *wire.FetchRequest, resp *http.Response) *wire.FetchAnswer {
	a := &wire.FetchAnswer{Status: resp.StatusCode, Headers: map[string]string{}}
	for _, name := range fetchedHeaders {
		if v := resp.Header.Get(name); v != "" {
			a.Headers[strings.ToLower(name)] = v[:min(len(v), maxFetchValue)]
		}
	}
	// What is packed is unpacked as it is read, and no further than this.
	body, err := io.ReadAll(io.LimitReader(resp.Body, r.Max+1))
	if err != nil {
		return &wire.FetchAnswer{Problem: "the answer broke off: " + fetchProblem(ctx, err)}
	}
	if a.Cut = int64(len(body)) > r.Max; a.Cut {
		body = body[:r.Max]
	}
	a.Body = body
	return a
}

// fetchProblem is an error in words. Most are the network's, which has its own record.
func fetchProblem(ctx context.Context, err error) string {
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
