// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// What a message is made of is bounded, not how long it is; a text counts as one.
func TestFrame(t *testing.T) {
	list := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"as much as may be":                 {list(maxValues), true},
		"one more":                          {list(maxValues + 1), false},
		"objects":                           {strings.Repeat("{", maxValues+1), false},
		"a long text":                       {`{"a":"` + strings.Repeat(`,[{`, maxValues) + `"}`, true},
		"a text with a quote in it":         {`{"a":"` + strings.Repeat(`\",[`, maxValues) + `"}`, true},
		"a text that ends with a backslash": {`{"a":"\\"` + strings.Repeat(",", maxValues) + `}`, false},
		"many lines":                        {strings.Repeat("[\n", maxValues+1), false},
	} {
		for _, r := range []io.Reader{strings.NewReader(c.text), iotest.OneByteReader(strings.NewReader(c.text))} {
			f := &framed{ReadCloser: io.NopCloser(r)}
			b, err := io.ReadAll(f)
			if (err == nil) != c.ok || c.ok && string(b) != c.text {
				t.Errorf("%s: %d bytes, %v", name, len(b), err)
			}
			if _, err := f.Read(make([]byte, 1)); !c.ok && err == nil {
				t.Errorf("%s: it goes on", name)
			}
		}
		if one, err := newLines(strings.NewReader(c.text)).next(); name != "many lines" && ((err == nil) != c.ok || string(one) != c.text) {
			t.Errorf("%s: a line of %d bytes, %v", name, len(one), err)
		}
	}
}

// A server whose answer is made of too much has ended, and it is said why.
func TestAnswerOfTooMuch(t *testing.T) {
	for name, answer := range map[string]string{
		"contents":   `{"content":[` + strings.Repeat("{},", maxValues) + `{}]}`,
		"structured": `{"content":[],"structuredContent":{"x":[` + strings.Repeat("[],", maxValues/2) + `[]]}}`,
	} {
		b := newBench(t, scripted(func(method string) string {
			if method == "tools/list" {
				return `{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`
			}
			return answer
		}))
		stop := b.serve()
		if text, res := b.call("a", `{}`); !res.IsError || !strings.Contains(text, "unavailable") {
			t.Errorf("%s: %.200s", name, text)
		}
		if !b.noticed("made of more than 200000 values") {
			t.Errorf("%s: %q", name, b.notices)
		}
		stop()
	}
}

// The endpoint takes no body that is made of too much, of either era.
func TestBodyOfTooMuch(t *testing.T) {
	s := endpoint(t, box{})
	meta := strings.TrimSuffix(listModern, "}}}") + `},"x":[` + strings.Repeat("[],\n", maxValues) + `[]]}}`
	for _, header := range [][]string{{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, nil} {
		if status, _, body := post(t, s.URL, "mine", meta, header...); status != http.StatusBadRequest || strings.Contains(body, "run_code") {
			t.Errorf("%q: %d %.200s", header, status, body)
		}
	}
}

// A client has a number of subscriptions, and gets the place of one back.
func TestSubscriptions(t *testing.T) {
	var s subscriptions
	one, two := &sdk.ServerSession{}, &sdk.ServerSession{}
	both := slices.Values([]*sdk.ServerSession{one, two})
	for i := range maxSubscriptions {
		if !s.add(one, fmt.Sprint(i), both) {
			t.Fatal(i)
		}
	}
	if s.add(one, "more", both) || !s.add(one, "1", both) || !s.add(two, "more", both) {
		t.Error("one more, one of those that are there, one of another client's")
	}
	s.remove(one, "1")
	if !s.add(one, "more", both) {
		t.Error("a place is not given back")
	}
	s.add(two, "x", slices.Values([]*sdk.ServerSession{two}))
	if len(s.of) != 1 {
		t.Error("one that left is kept", len(s.of))
	}
	var u upstream
	for i := range maxWatched {
		if !u.watch(fmt.Sprint(i)) {
			t.Fatal(i)
		}
	}
	if u.watch("more") || !u.watch("1") {
		t.Error("a server is asked without end")
	}
}

// The bound holds for a client of the gateway's.
func TestSubscribe(t *testing.T) {
	b := newBench(t, func(ctx context.Context, in io.Reader, out, errs io.Writer) int {
		s := sdk.NewServer(&sdk.Implementation{Name: "theirs", Version: "1"}, &sdk.ServerOptions{
			SubscribeHandler: func(context.Context, *sdk.SubscribeRequest) error { return nil }, UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil }})
		library(nil)(s)
		if err := s.Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(in), Writer: nopCloser{out}}); err != nil && ctx.Err() == nil {
			return 1
		}
		return 0
	})
	b.version = lastWithSessions // in which a client is told that it was refused
	b.serve(`{name: s, command: [server], resources: ["file:///notes/*"]}`)
	for i := range maxSubscriptions {
		if err := b.client.Subscribe(t.Context(), &sdk.SubscribeParams{URI: fmt.Sprint("file:///notes/", i)}); err != nil {
			t.Fatal(i, err)
		}
	}
	more := &sdk.SubscribeParams{URI: "file:///notes/more"}
	if err := b.client.Subscribe(t.Context(), more); err == nil || !strings.Contains(err.Error(), "at most 200 subscriptions") {
		t.Error(err)
	}
	if err := b.client.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: "file:///notes/7"}); err != nil {
		t.Error(err)
	}
	if err := b.client.Subscribe(t.Context(), more); err != nil {
		t.Error(err)
	}
	if n := len(b.kinds("subscribe_resource")); n != maxSubscriptions+1 {
		t.Errorf("%d are recorded", n)
	}
}
