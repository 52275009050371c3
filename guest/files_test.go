// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

func TestFiles(t *testing.T) {
	c, ctx := newClient(t), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.WriteFile(ctx, "/home/user/a/b/hello", strings.NewReader("hello"), sandbox.WriteOptions{}))
	must(c.WriteFile(ctx, "/home/user/a/run", strings.NewReader("#!/bin/sh\necho ran\n"), sandbox.WriteOptions{Mode: 0o750, Atomic: true}))
	if got := output(t, c, "./a/run; stat -c '%n %a %U' a/b a/b/hello a/run; ls -A a"); got != "ran\na/b 755 "+userName(t, c)+"\na/b/hello 644 "+userName(t, c)+"\na/run 750 "+userName(t, c)+"\nb\nrun" {
		t.Errorf("inside it looks like\n%s", got)
	}
	var b bytes.Buffer
	n, err := c.ReadFile(ctx, "/home/user/a/b/hello", &b, 5)
	if err != nil || n != 5 || b.String() != "hello" {
		t.Errorf("read %d bytes, %q, %v", n, &b, err)
	}
	if n, err := c.ReadFile(ctx, "/home/user/a/b/hello", io.Discard, 4); !errors.Is(err, sandbox.ErrInvalid) || n != 4 {
		t.Errorf("a file beyond the limit reads as %d bytes, %v", n, err)
	}
	if n, err := c.ReadFile(ctx, "/proc/self/status", io.Discard, 1<<20); err != nil || n == 0 {
		t.Errorf("a file without a size reads as %d bytes, %v", n, err)
	}
	must(c.Mkdir(ctx, "/home/user/dir"))
	if err := c.Mkdir(ctx, "/home/user/dir"); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("mkdir twice: %v", err)
	}
	must(c.Move(ctx, "/home/user/a/b/hello", "/home/user/new/place"))
	e, err := c.Stat(ctx, "/home/user/new/place")
	must(err)
	if d := time.Since(e.ModTime); d < 0 || d > time.Minute {
		t.Errorf("modified %v ago", d)
	}
	e.ModTime = time.Time{}
	want := sandbox.FileInfo{Name: "place", Path: "/home/user/new/place", Size: 5, Mode: 0o644, Owner: "user", Group: "user", Permissions: "-rw-r--r--", Kind: sandbox.RegularFile}
	if d := cmp.Diff(want, e); d != "" {
		t.Error(d)
	}
	output(t, c, "ln -s /etc/hostname link; ln -s nowhere dangling")
	list, err := c.List(ctx, "/home/user", 2)
	must(err)
	var names []string
	for _, e := range list {
		names = append(names, fmt.Sprintf("%s dir=%v to=%q", strings.TrimPrefix(e.Path, "/home/user/"), e.Kind == sandbox.Directory, e.Target))
	}
	wantNames := []string{
		`a dir=true to=""`, `a/b dir=true to=""`, `a/run dir=false to=""`, `dangling dir=false to="/home/user/dangling"`, `dir dir=true to=""`,
		`link dir=false to="/etc/hostname"`, `new dir=true to=""`, `new/place dir=false to=""`,
	}
	if d := cmp.Diff(wantNames, names); d != "" {
		t.Error(d)
	}
	must(c.Remove(ctx, "/home/user/a"))
	must(c.Remove(ctx, "/home/user/a")) // what is not there is gone
	if _, err := c.Stat(ctx, "/home/user/a"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("stat of what was removed: %v", err)
	}
}

func userName(t *testing.T, c *guest.Client) string {
	return output(t, c, "stat -c %U .")
}

// The agent is root, and lends its rights to no program: neither by a name nor
// by a link that code inside has laid out.
func TestFilesHaveTheUsersRights(t *testing.T) {
	b := newBox(t)
	root := b.dial(t, guest.Options{})
	output(t, root, "mkdir -m 700 /home/secret; echo secret >/home/secret/file; chmod 600 /home/secret/file; ln -s /home/secret/file /home/user/link; ln -s /home/secret /home/user/dir; echo keep >/home/keep")
	c, ctx := b.dial(t, user()), t.Context()
	write := func(path string, o sandbox.WriteOptions) func() error {
		return func() error { return c.WriteFile(ctx, path, strings.NewReader("x"), o) }
	}
	for what, f := range map[string]func() error{
		"read":               func() error { _, err := c.ReadFile(ctx, "/home/secret/file", io.Discard, 99); return err },
		"read by link":       func() error { _, err := c.ReadFile(ctx, "/home/user/link", io.Discard, 99); return err },
		"read below link":    func() error { _, err := c.ReadFile(ctx, "/home/user/dir/file", io.Discard, 99); return err },
		"write":              write("/home/keep", sandbox.WriteOptions{}),
		"write by link":      write("/home/user/link", sandbox.WriteOptions{}),
		"write atomically":   write("/home/keep", sandbox.WriteOptions{Atomic: true}),
		"write below link":   write("/home/user/dir/new", sandbox.WriteOptions{}),
		"write to system":    write("/etc/passwd", sandbox.WriteOptions{}),
		"write proc":         write("/proc/1/oom_score_adj", sandbox.WriteOptions{}),
		"list":               func() error { _, err := c.List(ctx, "/home/secret", 1); return err },
		"make a directory":   func() error { return c.Mkdir(ctx, "/home/new") },
		"remove":             func() error { return c.Remove(ctx, "/home/keep") },
		"remove below link":  func() error { return c.Remove(ctx, "/home/user/dir/file") },
		"move out":           func() error { return c.Move(ctx, "/home/keep", "/home/user/keep") },
		"move in":            func() error { return c.Move(ctx, "/home/user/link", "/home/link") },
		"stat in a closed d": func() error { _, err := c.Stat(ctx, "/home/secret/file"); return err },
	} {
		t.Run(what, func(t *testing.T) {
			if err := f(); !errors.Is(err, sandbox.ErrInvalid) {
				// WalkDir reports an unreadable root as nothing to list.
				t.Errorf("got %v, want it refused", err)
			}
		})
	}
	root = b.dial(t, guest.Options{})
	if got := output(t, root, "cat /home/secret/file /home/keep; ls /home /home/secret"); got != "secret\nkeep\n/home:\nkeep\nsecret\nuser\n\n/home/secret:\nfile" {
		t.Errorf("it has changed:\n%s", got)
	}
}

func TestBadPathsAreRefused(t *testing.T) {
	c, ctx := newClient(t), t.Context()
	output(t, c, "mkfifo pipe; mkdir d")
	for _, p := range []string{"~root", "/a\x00b", "/" + strings.Repeat("a", 5000)} {
		_, err := c.Stat(ctx, p)
		if !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("stat %.20q: %v", p, err)
		}
	}
	for p, want := range map[string]string{"": "/home/user", "d": "/home/user/d", "~/d/../d": "/home/user/d", "/home/": "/home"} {
		if e, err := c.Stat(ctx, p); err != nil || e.Path != want {
			t.Errorf("stat %q: %q, %v", p, e.Path, err)
		}
	}
	for name, err := range map[string]error{"remove": c.Remove(ctx, ""), "mkdir": c.Mkdir(ctx, ""), "move": c.Move(ctx, "", "x"), "move to": c.Move(ctx, "d", "")} {
		if !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
	for _, p := range []string{"/dev/zero", "/home/user/pipe", "/home/user/d"} {
		if _, err := c.ReadFile(ctx, p, io.Discard, 99); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("read %s: %v", p, err)
		}
		if err := c.WriteFile(ctx, p, strings.NewReader("x"), sandbox.WriteOptions{}); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("write %s: %v", p, err)
		}
	}
	if _, err := c.ReadFile(ctx, "/no/such", io.Discard, 99); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("read of nothing: %v", err)
	}
}

// An upload that breaks leaves the old file when it is atomic.
func TestBrokenUpload(t *testing.T) {
	c, ctx := newClient(t), t.Context()
	if err := c.WriteFile(ctx, "/home/user/f", strings.NewReader("old"), sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	source := io.MultiReader(strings.NewReader(strings.Repeat("new", 100_000)), failingReader{broken})
	if err := c.WriteFile(ctx, "/home/user/f", source, sandbox.WriteOptions{Atomic: true}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	eventually(t, "the temporary file is gone", func() bool { return output(t, c, "ls -A; cat f") == "f\nold" })
}

func TestFullDisk(t *testing.T) {
	c := newClient(t)
	err := c.WriteFile(t.Context(), "/home/user/big", io.LimitReader(zeros{}, 200<<20), sandbox.WriteOptions{Atomic: true})
	if err == nil || !strings.Contains(err.Error(), "not enough disk space available") {
		t.Errorf("got %v", err)
	}
	if got := output(t, c, "ls -A"); got != "" {
		t.Errorf("it leaves %s", got)
	}
}

func TestBulkFiles(t *testing.T) {
	const size = 100 << 20
	c, ctx := newClient(t), t.Context()
	start := time.Now()
	if err := c.WriteFile(ctx, "/tmp/big", io.LimitReader(zeros{}, size), sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	up := time.Since(start)
	start = time.Now()
	if n, err := c.ReadFile(ctx, "/tmp/big", io.Discard, size); err != nil || n != size {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	t.Logf("100 MiB up %v, down %v", up, time.Since(start))
}

// saved collects into memory.
type saved struct {
	files map[string]string
	order []string
}

func (s *saved) open(f guest.File) (io.Writer, error) {
	s.order = append(s.order, fmt.Sprintf("%s %o", f.Path, f.Mode))
	return &saving{s: s, name: f.Path}, nil
}

type saving struct {
	bytes.Buffer
	s    *saved
	name string
}

func (w *saving) Close() error { w.s.files[w.name] = w.String(); return nil }

func collect(t *testing.T, c *guest.Client, root string, l guest.CollectLimits, patterns ...string) (*saved, *guest.Collection, error) {
	t.Helper()
	s := &saved{files: make(map[string]string)}
	got, err := c.Collect(t.Context(), patterns, root, s.open, l)
	return s, got, err
}

func TestCollect(t *testing.T) {
	b := newBox(t)
	c := b.dial(t, user())
	output(t, c, `mkdir -p out/deep/er closed; echo 1 >out/1.txt; echo 2 >out/deep/2.txt; echo 3 >out/deep/er/3.txt; echo x >out/other
		chmod 600 out/1.txt; : >out/empty.txt; mkfifo out/pipe.txt; ln -s /etc/passwd out/link.txt; ln -s /etc out/etc; ln -s deep out/inner; echo s >out/secret.txt; chmod 0 out/secret.txt
		printf x >$'out/bad\nname.txt'; chmod 0 closed`)
	s, got, err := collect(t, c, "/home/user", guest.CollectLimits{}, "out/**/*.txt", "none/*.png", "out/etc/*")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"out/1.txt": "1\n", "out/deep/2.txt": "2\n", "out/deep/er/3.txt": "3\n", "out/empty.txt": ""}, s.files); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"out/1.txt 600", "out/deep/2.txt 644", "out/deep/er/3.txt 644", "out/empty.txt 644"}, s.order); d != "" {
		t.Error(d)
	}
	want := &guest.Collection{
		Files: []guest.Collected{
			{Path: "out/1.txt", Size: 2, SHA256: "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865"},
			{Path: "out/deep/2.txt", Size: 2, SHA256: "53c234e5e8472b6ac51c1ae1cab3fe06fad053beb8ebfd8977b010655bfdd3c3"},
			{Path: "out/deep/er/3.txt", Size: 2, SHA256: "1121cfccd5913f0a63fec40a6ffd44ea64f9dc135c66634ba001d10bcf4302a2"},
			{Path: "out/empty.txt", Size: 0, SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		},
		Links: []guest.Link{{Path: "out/link.txt", Target: "/etc/passwd"}},
		Skipped: []guest.Skipped{
			{Path: `out/bad\nname.txt`, Reason: "its name: it holds the control character U+000A"},
			{Path: "out/pipe.txt", Reason: "not a file"},
			{Path: "out/secret.txt", Reason: "permission denied"},
		},
		Unmatched: []string{"none/*.png", "out/etc/*"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCollectRefuses(t *testing.T) {
	c := newClient(t)
	output(t, c, `mkdir -p real/a/b/c; ln -s real fake; for i in 1 2 3 4; do echo 12345 >real/$i; done; echo deep >real/a/b/c/f`)
	for _, tt := range []struct {
		name, root string
		limits     guest.CollectLimits
		patterns   []string
		want       string
	}{
		{name: "the root is a link", root: "/home/user/fake", patterns: []string{"*"}, want: "is a link"},
		{name: "the root is a file", root: "/home/user/real/1", patterns: []string{"*"}, want: "not a directory"},
		{name: "no root", root: "/home/user/none", patterns: []string{"*"}, want: "no such file"},
		{name: "a relative root", root: "real", patterns: []string{"*"}, want: "not absolute"},
		{name: "no pattern", root: "/home/user", want: "1 to 256 patterns"},
		{name: "upwards", root: "/home/user", patterns: []string{"../x"}, want: `".." is no name`},
		{name: "absolute", root: "/home/user", patterns: []string{"/etc/passwd"}, want: "absolute"},
		{name: "malformed", root: "/home/user", patterns: []string{"[a"}, want: "syntax error"},
		{name: "too many", root: "/home/user/real", patterns: []string{"*"}, limits: guest.CollectLimits{Files: 3}, want: "more than 3 files"},
		{name: "too large", root: "/home/user/real", patterns: []string{"*"}, limits: guest.CollectLimits{Bytes: 20}, want: "larger than 20 bytes"},
		{name: "too deep", root: "/home/user/real", patterns: []string{"**"}, limits: guest.CollectLimits{Depth: 2}, want: "deeper than 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := collect(t, c, tt.root, tt.limits, tt.patterns...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Code that swaps directories for links while it is collected from gets
// nothing from outside into the collection.
func TestCollectRace(t *testing.T) {
	b := newBox(t)
	output(t, b.dial(t, guest.Options{}), "mkdir /home/outside; echo SECRET >/home/outside/f")
	c := b.dial(t, user())
	output(t, c, "mkdir -p out/d; echo inside >out/d/f; ln -s /home/outside swap")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	x := program("/usr/bin/python3", "-c", `
import os
print("ready", flush=True)
while True:
    os.rename("out/d", "out/x"); os.rename("swap", "out/d")
    os.rename("out/d", "swap"); os.rename("out/x", "out/d")`)
	ready := make(chan struct{})
	x.Stdout = writerFunc(func(p []byte) (int, error) { close(ready); return len(p), nil })
	go func() { defer close(ended); c.Run(ctx, x) }()
	<-ready
	seen := 0
	late := time.Now().Add(timeout)
	// On a busy machine the program may stand still in the one state for as long as
	// a few hundred tries take.
	for n := 0; n < 300 || seen == 0 && time.Now().Before(late); n++ {
		s, _, err := collect(t, c, "/home/user", guest.CollectLimits{}, "out/d/f")
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range s.files {
			if seen++; content != "inside\n" {
				t.Fatalf("%s is %q", name, content)
			}
		}
	}
	cancel()
	<-ended
	if seen == 0 {
		t.Error("the race was never won by the file; nothing was tested")
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }
