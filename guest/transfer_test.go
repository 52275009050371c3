// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

const octets = "application/octet-stream"

func zipped(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(s))
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUpload(t *testing.T) {
	metadata := func(name, value string) sandbox.WriteOptions {
		return sandbox.WriteOptions{Metadata: map[string]string{name: value}}
	}
	for _, tt := range []struct {
		name, path, body string
		o                sandbox.WriteOptions
		status           int // of the refusal
		want             sandbox.WrittenFile
	}{
		{name: "bytes", path: "f", body: "x", want: sandbox.WrittenFile{Path: "/home/user/f"}},
		{name: "empty", path: "~/a/b/f", want: sandbox.WrittenFile{Path: "/home/user/a/b/f"}},
		{name: "gzip", path: "f", o: sandbox.WriteOptions{Encoding: "gzip"}, body: string(zipped(t, "x")), want: sandbox.WrittenFile{Path: "/home/user/f"}},
		{name: "no gzip", path: "f", o: sandbox.WriteOptions{Encoding: "gzip"}, body: "x", status: 400},
		{name: "unknown packing", path: "f", o: sandbox.WriteOptions{Encoding: "br"}, body: "x", status: 400},
		{name: "no path", body: "x", status: 400},
		{name: "a directory", path: "/tmp", body: "x", status: 400},
		{name: "not the user's", path: "/etc/x", body: "x", status: 403},
		{name: "below a file", path: "/etc/passwd/x", body: "x", status: 400},
		{name: "metadata", path: "f", o: metadata("key", "v"), want: sandbox.WrittenFile{Path: "/home/user/f", Metadata: map[string]string{"key": "v"}}},
		{name: "too much metadata", path: "f", o: metadata("key", strings.Repeat("v", 4096)), status: 400},
		{name: "a long key", path: "f", o: metadata(strings.Repeat("k", 247), "v"), status: 400},
		{name: "metadata that is not ASCII", path: "f", o: metadata("key", "\u00fc"), status: 400},
		{name: "atomic, with metadata", path: "f", o: sandbox.WriteOptions{Atomic: true, Metadata: map[string]string{"key": "v"}}, body: "x", want: sandbox.WrittenFile{Path: "/home/user/f", Metadata: map[string]string{"key": "v"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t)
			got, err := c.Upload(t.Context(), tt.path, strings.NewReader(tt.body), tt.o)
			var r *sandbox.AgentError
			if tt.status != 0 && (!errors.As(err, &r) || r.Status != tt.status) {
				t.Errorf("it is refused with %v, want %d", err, tt.status)
			}
			if tt.status != 0 {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestUploadReplacesMetadata(t *testing.T) {
	c, ctx := newClient(t), t.Context()
	for _, want := range []map[string]string{{"a": "1", "b": "2"}, {"b": "3"}, {}} {
		if _, err := c.Upload(ctx, "f", strings.NewReader("x"), sandbox.WriteOptions{Metadata: want}); err != nil {
			t.Fatal(err)
		}
		if e, err := c.Stat(ctx, "f"); err != nil || !maps.Equal(e.Metadata, want) {
			t.Errorf("after %v it has %v, %v", want, e.Metadata, err)
		}
	}
	// What code inside sets is shown only where it can be.
	output(t, c, `python3 -c 'import os; os.setxattr("f", "user.e2b.good", b"yes"); os.setxattr("f", "user.e2b.bad", b"\xff"); os.setxattr("f", "user.other", b"x")'`)
	if e, err := c.Stat(ctx, "f"); err != nil || !maps.Equal(e.Metadata, map[string]string{"good": "yes"}) {
		t.Errorf("it has %v, %v", e.Metadata, err)
	}
}

func TestDownload(t *testing.T) {
	c := newClient(t)
	output(t, c, "printf 0123456789 >f; : >empty; mkdir d; mkfifo pipe")
	for _, tt := range []struct {
		name   string
		path   string
		ask    http.Header
		status int
		body   string
		header map[string]string
	}{
		{name: "whole", path: "f", status: 200, body: "0123456789", header: map[string]string{"Content-Length": "10", "Content-Type": octets, "Accept-Ranges": "bytes", "Content-Encoding": ""}},
		{name: "empty", path: "empty", ask: http.Header{"Accept-Encoding": {"gzip"}}, status: 200, header: map[string]string{"Content-Length": "0"}},
		{name: "without a size", path: "/proc/sys/kernel/ostype", status: 200, body: "Linux\n"},
		{name: "a part", path: "f", ask: http.Header{"Range": {"bytes=3-4"}}, status: 206, body: "34", header: map[string]string{"Content-Range": "bytes 3-4/10", "Content-Length": "2"}},
		{name: "the end", path: "f", ask: http.Header{"Range": {"bytes=-2"}, "Accept-Encoding": {"gzip"}}, status: 206, body: "89", header: map[string]string{"Content-Encoding": ""}},
		{name: "no such part", path: "f", ask: http.Header{"Range": {"bytes=10-"}}, status: 416},
		{name: "unchanged", path: "f", ask: http.Header{"If-Modified-Since": {"Fri, 01 Jan 2100 00:00:00 GMT"}}, status: 304},
		{name: "gzip", path: "f", ask: http.Header{"Accept-Encoding": {"br;q=1, gzip;q=0.5"}}, status: 200, body: "gzip", header: map[string]string{"Content-Encoding": "gzip"}},
		{name: "no way", path: "f", ask: http.Header{"Accept-Encoding": {"identity;q=0"}}, status: 406},
		{name: "missing", path: "none", status: 404},
		{name: "a directory", path: "d", status: 400},
		{name: "nothing", path: "", status: 400},
		{name: "a pipe", path: "pipe", status: 400},
		{name: "not the user's", path: "/etc/shadow", status: 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := c.Download(t.Context(), tt.path, tt.ask)
			var r *sandbox.AgentError
			if tt.status >= 400 {
				if !errors.As(err, &r) || r.Status != tt.status {
					t.Errorf("it is refused with %v, want %d", err, tt.status)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Body.Close()
			b, err := io.ReadAll(d.Body)
			if tt.body == "gzip" {
				z, err := gzip.NewReader(bytes.NewReader(b))
				if err != nil {
					t.Fatal(err)
				}
				if b, err = io.ReadAll(z); string(b) != "0123456789" || err != nil {
					t.Errorf("packed is %q, %v", b, err)
				}
			} else if string(b) != tt.body || err != nil {
				t.Errorf("it is %q, %v", b, err)
			}
			if d.Status != tt.status {
				t.Errorf("status %d, want %d", d.Status, tt.status)
			}
			for name, want := range tt.header {
				if got := d.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

// A file for which there is no room.
func TestUploadToAFullDisk(t *testing.T) {
	c := newClient(t)
	_, err := c.Upload(t.Context(), "big", io.LimitReader(zeros{}, 110<<20), sandbox.WriteOptions{})
	var r *sandbox.AgentError
	if !errors.As(err, &r) || r.Status != http.StatusInsufficientStorage || !strings.Contains(r.Message, "not enough disk space available") {
		t.Errorf("it is refused with %v", err)
	}
}

func TestCompose(t *testing.T) {
	c, ctx := newClient(t), t.Context()
	output(t, c, "printf 1 >a; printf 2 >b; printf old >to; mkdir d")
	for _, tt := range []struct {
		from   []string
		to     string
		status int
	}{
		{nil, "x", 400},
		{[]string{"a"}, "", 400},
		{[]string{"a", "none"}, "to", 404},
		{[]string{"a", "d"}, "to", 400},
		{[]string{"a"}, "./a", 400},
		{[]string{"/etc/shadow"}, "to", 403},
	} {
		var r *sandbox.AgentError
		if _, err := c.Compose(ctx, tt.from, tt.to); !errors.As(err, &r) || r.Status != tt.status {
			t.Errorf("%q to %q: %v, want %d", tt.from, tt.to, err, tt.status)
		}
	}
	if got := output(t, c, "cat a b to; ls -A"); got != "12olda\nb\nd\nto" {
		t.Errorf("after failures there is %q", got)
	}
	w, err := c.Compose(ctx, []string{"b", "a"}, "to")
	if err != nil || w.Path != "/home/user/to" {
		t.Errorf("%+v, %v", w, err)
	}
	if got := output(t, c, "cat to; ls -A"); got != "21d\nto" {
		t.Errorf("then there is %q", got)
	}
}
