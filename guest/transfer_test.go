// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/guest"
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

// form is a multipart body, written by hand: each part's disposition, then its
// content.
func form(parts ...string) string {
	var b strings.Builder
	for i := 0; i < len(parts); i += 2 {
		fmt.Fprintf(&b, "--B\r\nContent-Disposition: %s\r\n\r\n%s\r\n", parts[i], parts[i+1])
	}
	return b.String() + "--B--\r\n"
}

func TestUpload(t *testing.T) {
	const multi = "multipart/form-data; boundary=B"
	for _, tt := range []struct {
		name   string
		upload guest.Upload
		body   string
		status int // of the refusal
		want   []guest.Written
	}{
		{name: "bytes", upload: guest.Upload{Path: "f", ContentType: octets}, body: "x", want: []guest.Written{{Name: "f", Path: "/home/user/f"}}},
		{name: "empty", upload: guest.Upload{Path: "~/a/b/f", ContentType: octets}, want: []guest.Written{{Name: "f", Path: "/home/user/a/b/f"}}},
		{name: "gzip", upload: guest.Upload{Path: "f", ContentType: octets, ContentEncoding: "gzip"}, body: string(zipped(t, "x")), want: []guest.Written{{Name: "f", Path: "/home/user/f"}}},
		{name: "no gzip", upload: guest.Upload{Path: "f", ContentType: octets, ContentEncoding: "gzip"}, body: "x", status: 400},
		{name: "unknown packing", upload: guest.Upload{Path: "f", ContentType: octets, ContentEncoding: "br"}, body: "x", status: 400},
		{name: "no path", upload: guest.Upload{ContentType: octets}, body: "x", status: 400},
		{name: "no type", upload: guest.Upload{Path: "f"}, body: "x", status: 400},
		{name: "a directory", upload: guest.Upload{Path: "/tmp", ContentType: octets}, body: "x", status: 400},
		{name: "not the user's", upload: guest.Upload{Path: "/etc/x", ContentType: octets}, body: "x", status: 403},
		{name: "below a file", upload: guest.Upload{Path: "/etc/passwd/x", ContentType: octets}, body: "x", status: 400},
		{name: "form", upload: guest.Upload{ContentType: multi}, body: form(`form-data; name="file"; filename="d/one"`, "1", `form-data; name="other"`, "-", `form-data; name="file"; filename="/tmp/two"`, "2"),
			want: []guest.Written{{Name: "one", Path: "/home/user/d/one"}, {Name: "two", Path: "/tmp/two"}}},
		{name: "form for a path", upload: guest.Upload{Path: "p", ContentType: multi}, body: form(`form-data; name="file"`, "1"), want: []guest.Written{{Name: "p", Path: "/home/user/p"}}},
		{name: "form without names", upload: guest.Upload{ContentType: multi}, body: form(`form-data; name="file"`, "1"), status: 400},
		{name: "one path twice", upload: guest.Upload{ContentType: multi}, body: form(`form-data; name="file"; filename="a"`, "1", `form-data; name="file"; filename="./a"`, "2"), status: 400},
		{name: "form cut short", upload: guest.Upload{ContentType: multi}, body: form(`form-data; name="file"; filename="a"`, "1")[:67], status: 500},
		{name: "empty form", upload: guest.Upload{ContentType: multi}, body: form(), want: []guest.Written{}},
		{name: "metadata", upload: guest.Upload{Path: "f", ContentType: octets, Metadata: http.Header{"X-Metadata-Key": {"v", "w"}, "Cookie": {"no"}}}, want: []guest.Written{{Name: "f", Path: "/home/user/f", Metadata: map[string]string{"key": "v"}}}},
		{name: "too much metadata", upload: guest.Upload{Path: "f", ContentType: octets, Metadata: http.Header{"X-Metadata-Key": {strings.Repeat("v", 4096)}}}, status: 400},
		{name: "a long key", upload: guest.Upload{Path: "f", ContentType: octets, Metadata: http.Header{"X-Metadata-" + strings.Repeat("K", 247): {"v"}}}, status: 400},
		{name: "metadata that is not ASCII", upload: guest.Upload{Path: "f", ContentType: octets, Metadata: http.Header{"X-Metadata-Key": {"\u00fc"}}}, status: 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t)
			tt.upload.Body = strings.NewReader(tt.body)
			got, err := c.Upload(t.Context(), tt.upload)
			var r *guest.Refusal
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
	for _, h := range []http.Header{{"X-Metadata-A": {"1"}, "X-Metadata-B": {"2"}}, {"X-Metadata-B": {"3"}}, {}} {
		if _, err := c.Upload(ctx, guest.Upload{Path: "f", ContentType: octets, Metadata: h, Body: strings.NewReader("x")}); err != nil {
			t.Fatal(err)
		}
		e, err := c.Stat(ctx, "f")
		want := map[string]string{}
		for name, v := range h {
			want[strings.ToLower(strings.TrimPrefix(name, "X-Metadata-"))] = v[0]
		}
		if err != nil || !maps.Equal(e.Metadata, want) {
			t.Errorf("after %v it has %v, %v", h, e.Metadata, err)
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
			var r *guest.Refusal
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
	_, err := c.Upload(t.Context(), guest.Upload{Path: "big", ContentType: octets, Body: io.LimitReader(zeros{}, 110<<20)})
	var r *guest.Refusal
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
		var r *guest.Refusal
		if _, err := c.Compose(ctx, tt.from, tt.to); !errors.As(err, &r) || r.Status != tt.status {
			t.Errorf("%q to %q: %v, want %d", tt.from, tt.to, err, tt.status)
		}
	}
	if got := output(t, c, "cat a b to; ls -A"); got != "12olda\nb\nd\nto" {
		t.Errorf("after failures there is %q", got)
	}
	w, err := c.Compose(ctx, []string{"b", "a"}, "to")
	if err != nil || w.Path != "/home/user/to" || w.Name != "to" {
		t.Errorf("%+v, %v", w, err)
	}
	if got := output(t, c, "cat to; ls -A"); got != "21d\nto" {
		t.Errorf("then there is %q", got)
	}
}
