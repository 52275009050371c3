// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/sandbox"
)

// opened is a Caisson of a test's own, which leaves neither a goroutine nor a run directory.
func opened(t *testing.T, o caisson.Options) *caisson.Caisson {
	t.Helper()
	leak := goleak.IgnoreCurrent()
	o.State = filepath.Join(t.TempDir(), "state")
	c, err := caisson.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(o.State, "run", "[a-z]*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		goleak.VerifyNone(t, leak)
	})
	return c
}

// policyFile is a policy of a test's own.
func policyFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("version: 1\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// shell runs a line and returns what it wrote.
func shell(t *testing.T, box *caisson.Sandbox, line string) string {
	t.Helper()
	res, err := box.Exec(t.Context(), caisson.Exec{Shell: line})
	if err != nil || res.Status != sandbox.StatusSuccess {
		t.Fatalf("%s: %v, %+v", line, err, res)
	}
	return string(res.Stdout)
}

// A sandbox keeps files and processes between calls, and has what its owner gives it.
func TestSandbox(t *testing.T) {
	for _, level := range []string{"gvisor", "process"} {
		t.Run(level, func(t *testing.T) {
			c := opened(t, caisson.Options{})
			work := t.TempDir()
			if err := os.WriteFile(filepath.Join(work, "given"), []byte("of the host\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			box, err := c.Create(t.Context(), caisson.Create{Isolation: level, Actor: "alice", Env: map[string]string{"A": "1"},
				Mounts: []caisson.Mount{{Source: filepath.Join(work, "given"), Target: "/given"}}})
			if err != nil {
				t.Fatal(err)
			}
			defer box.Close()
			if got := shell(t, box, `cat /given; echo $A; echo kept >f; sleep 1000 </dev/null >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done`); got != "of the host\n1\n" {
				t.Errorf("%q", got)
			}
			files := box.Files()
			if err := files.Write(t.Context(), "d/g", strings.NewReader("written\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := shell(t, box, `cat f d/g; ls -l d/g | cut -c 1-10; cat /proc/[0-9]*/comm | grep sleep`); got != "kept\nwritten\n-rw-------\nsleep\n" {
				t.Errorf("%q", got)
			}
			if err := errors.Join(files.Mkdir(t.Context(), "e"), files.Rename(t.Context(), "d/g", "e/h")); err != nil {
				t.Error(err)
			}
			list, err := files.List(t.Context(), "e", 1)
			if err != nil || len(list) != 1 || list[0].Path != "/home/user/e/h" || list[0].Kind != sandbox.RegularFile {
				t.Errorf("%+v, %v", list, err)
			}
			r, err := files.Read(t.Context(), "e/h")
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil || string(b) != "written\n" {
				t.Errorf("%q, %v", b, err)
			}
			if err := files.Remove(t.Context(), "e"); err != nil {
				t.Error(err)
			}
			if _, err := files.Stat(t.Context(), "e/h"); !errors.Is(err, sandbox.ErrNotFound) {
				t.Error(err)
			}
			info, err := box.Get(t.Context())
			if err != nil || info.State != "running" || info.Isolation != level || info.Posture.Isolation != level || !info.Ends.IsZero() {
				t.Errorf("%+v, %v", info, err)
			}
			if err := box.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := box.Exec(t.Context(), caisson.Exec{Shell: "true"}); !errors.Is(err, sandbox.ErrNotFound) {
				t.Error(err)
			}
			if err := box.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Programs are spoken with while they run, end with their context or their time, and leave
// the sandbox as it is.
func TestSandboxExec(t *testing.T) {
	c := opened(t, caisson.Options{})
	box, err := c.Create(t.Context(), caisson.Create{Isolation: "process"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	res, err := box.Exec(t.Context(), caisson.Exec{Language: "python", Code: "import sys; print(sys.argv[1], input())", Args: []string{"a"}, Stdin: strings.NewReader("b\n"), Stdout: &out})
	if err != nil || out.String() != "a b\n" || res.Status != sandbox.StatusSuccess {
		t.Errorf("%v, %+v, %q", err, res, &out)
	}
	res, err = box.Exec(t.Context(), caisson.Exec{Command: []string{"sleep", "1000"}, Timeout: time.Second})
	if err != nil || res.Status != sandbox.StatusTimeout {
		t.Errorf("%v, %+v", err, res)
	}
	if _, err := box.Exec(t.Context(), caisson.Exec{Shell: "true", Code: "1"}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Error(err)
	}
	if got := shell(t, box, "pwd"); got != "/home/user\n" {
		t.Errorf("%q", got)
	}
}

// A program of a sandbox that listens is reached from outside.
func TestSandboxDial(t *testing.T) {
	c := opened(t, caisson.Options{})
	box, err := c.Create(t.Context(), caisson.Create{Isolation: "process"})
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := box.Exec(t.Context(), caisson.Exec{Language: "python", Stdout: w, Code: `import socket
s = socket.create_server(("127.0.0.1", 8000))
print("!", end="", flush=True)
s.accept()[0].sendall(b"from inside")
`})
		w.CloseWithError(errors.Join(err, io.EOF))
		ended <- err
	}()
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	if conn, err = box.Dial(t.Context(), 8000); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); string(got) != "from inside" {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The policy holds for sandboxes, for what runs in them, and for their files, and each
// refusal is an error with its rule.
func TestSandboxPolicy(t *testing.T) {
	c := opened(t, caisson.Options{Policy: policyFile(t, "isolation: process\ncommands: {allow: [sh, cat]}\nfiles: {deny: ['**/secret']}\nlimits: {memory: 128MiB}\n"), MaxSandboxes: 1})
	if _, err := c.Create(t.Context(), caisson.Create{Mounts: []caisson.Mount{{Source: t.TempDir()}}}); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("a mount that the policy does not know: %v", err)
	}
	if _, err := c.Create(t.Context(), caisson.Create{Allow: []string{"example.com"}}); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), "example.com") {
		t.Errorf("a host that the policy does not know: %v", err)
	}
	box, err := c.Create(t.Context(), caisson.Create{})
	if err != nil {
		t.Fatal(err)
	}
	var e *sandbox.Error
	if _, err := box.Exec(t.Context(), caisson.Exec{Command: []string{"rm", "-rf", "/"}}); !errors.Is(err, sandbox.ErrDenied) || !errors.As(err, &e) || !strings.Contains(e.Rule, "policy.yaml:3") {
		t.Errorf("%v", err)
	}
	if err := box.Files().Write(t.Context(), "secret", strings.NewReader("x"), 0); !errors.Is(err, sandbox.ErrDenied) {
		t.Errorf("%v", err)
	}
	if _, err := c.Create(t.Context(), caisson.Create{}); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("a second one: %v", err)
	}
}

// What cannot be meant, and what a level cannot do, is refused, in the words of this package.
func TestSandboxRefused(t *testing.T) {
	c := opened(t, caisson.Options{})
	for what, w := range map[string]caisson.Create{
		"isolation": {Isolation: "gvisr"},
		"wall":      {Limits: caisson.Limits{Wall: -1}},
		"mount":     {Mounts: []caisson.Mount{{Source: filepath.Join(t.TempDir(), "missing")}}},
		"image":     {Image: "UPPER"},
	} {
		box, err := c.Create(t.Context(), w)
		if err == nil {
			box.Close()
		}
		var e *sandbox.Error
		if !errors.As(err, &e) || strings.Contains(fmt.Sprint(err, e.Hint), "--") {
			t.Errorf("%s: %v, hint %q", what, err, sandbox.Hint(err))
		}
	}
	box, err := c.Create(t.Context(), caisson.Create{Isolation: "process"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Exec(t.Context(), caisson.Exec{Shell: "id -u", User: "root"}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("root: %v", err)
	}
	if err := errors.Join(box.Pause(t.Context()), box.Resume(t.Context(), 0)); err != nil {
		t.Error(err)
	}
	if _, err := box.KeepChanges(t.Context(), false); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Error(err)
	}
}

// Close ends sandboxes, and none is made any more.
func TestSandboxesClose(t *testing.T) {
	c, err := caisson.Open(t.Context(), caisson.Options{State: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	box, err := c.Create(t.Context(), caisson.Create{Isolation: "process"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := box.Exec(t.Context(), caisson.Exec{Shell: "true"}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
	if _, err := c.Create(t.Context(), caisson.Create{}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Error(err)
	}
}

// What a sandbox on gVisor has changed in a workspace is kept, and it goes on after a pause.
func TestSandboxWorkspace(t *testing.T) {
	c := opened(t, caisson.Options{})
	work := t.TempDir()
	box, err := c.Create(t.Context(), caisson.Create{Workspace: &caisson.Mount{Source: work, Access: sandbox.CopyOnWrite}, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	shell(t, box, "echo new >here")
	if err := box.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, err := box.Get(t.Context()); err != nil || info.State != "paused" {
		t.Errorf("%+v, %v", info, err)
	}
	if err := box.Resume(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := shell(t, box, "cat here"); got != "new\n" {
		t.Errorf("%q", got)
	}
	if res, err := box.Exec(t.Context(), caisson.Exec{Shell: "id -u", User: "root"}); err != nil || string(res.Stdout) != "0\n" {
		t.Errorf("root: %+v, %v", res, err)
	}
	if err := box.Extend(t.Context(), 2*time.Hour); err != nil {
		t.Error(err)
	}
	if info, err := box.Get(t.Context()); err != nil || time.Until(info.Ends) < time.Hour {
		t.Errorf("%+v, %v", info, err)
	}
	kept, err := box.KeepChanges(t.Context(), false)
	if err != nil || kept == nil || kept.Files != 1 {
		t.Fatalf("%+v, %v", kept, err)
	}
	if set, err := c.ChangeSets().Get(kept.ID); err != nil || len(set.Entries) != 1 {
		t.Errorf("%+v, %v", set, err)
	}
	if _, err := os.Stat(filepath.Join(work, "here")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the host has it already")
	}
}

// An image is a sandbox's root where nothing of the host is mounted, too.
func TestSandboxOfImage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	imagetest.New(t, imagetest.Config{}, imagetest.Programs(t, "sh", "cat"), imagetest.Layer(t, "etc/", "etc/passwd=root:x:0:0::/root:/bin/sh\n", "version=one\n")).Layout(dir)
	for _, level := range []string{"gvisor", "process"} {
		t.Run(level, func(t *testing.T) {
			c := opened(t, caisson.Options{})
			box, err := c.Create(t.Context(), caisson.Create{Isolation: level, Image: "oci:" + dir})
			if err != nil {
				t.Fatal(err)
			}
			if got := shell(t, box, "cat /version"); got != "one\n" {
				t.Errorf("it has %q", got)
			}
			if err := box.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
