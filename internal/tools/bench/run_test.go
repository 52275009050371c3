// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// fakeGo puts a go command first in PATH that notes how it was called and
// does what script says.
func fakeGo(t *testing.T, script string) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	text := "#!/bin/sh\necho \"CGO_ENABLED=$CGO_ENABLED $*\" >> " + log + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return log
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBuildRunsc(t *testing.T) {
	log := fakeGo(t, `printf built > "$5"`)
	path := filepath.Join(t.TempDir(), "new", "runsc")
	if err := buildRunsc(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if want := "CGO_ENABLED=0 build -ldflags -s -w -o " + path + " gvisor.dev/gvisor/runsc\n"; read(t, log) != want {
		t.Errorf("called as %q, want %q", read(t, log), want)
	}
	if read(t, path) != "built" {
		t.Error("nothing was built")
	}
}

// A stock runsc of another version would make every ratio a lie.
func TestBuildRunscReplacesAnythingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runsc")
	if err := os.WriteFile(path, []byte("of another version"), 0o700); err != nil {
		t.Fatal(err)
	}
	fakeGo(t, `printf built > "$5"`)
	if err := buildRunsc(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "built" {
		t.Errorf("kept %q", got)
	}
}

func TestBuildRunscSaysWhyNot(t *testing.T) {
	fakeGo(t, "echo no such package >&2; exit 1")
	err := buildRunsc(t.Context(), filepath.Join(t.TempDir(), "runsc"))
	if err == nil || !strings.Contains(err.Error(), "no such package") {
		t.Errorf("error %v, want what go said", err)
	}
}

// wholeTool runs the tool with actors in both roles.
func wholeTool(t *testing.T, ctx context.Context, args ...string) (stdout string, err error) {
	t.Helper()
	fakeGo(t, `[ "$1" = build ] && { printf '#!/bin/sh\nexit 0\n' > "$5"; chmod 700 "$5"; }`)
	dir := t.TempDir()
	caisson := filepath.Join(dir, "caisson")
	if err := os.WriteFile(caisson, []byte("#!/bin/sh\necho caisson v9.8.7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var out bytes.Buffer
	err = run(ctx, append([]string{"-n", "1", "-caisson", caisson, "-runsc", filepath.Join(dir, "runsc")}, args...), &out, io.Discard)
	if left, rerr := os.ReadDir(tmp); rerr != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, rerr)
	}
	return out.String(), err
}

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.md")
	out, err := wholeTool(t, t.Context(), "-rows", "^caisson version|^size", "-o", file)
	if err != nil {
		t.Fatal(err)
	}
	if read(t, file) != out {
		t.Error("the file is not what was printed")
	}
	for _, want := range []string{
		`(?m)^- date: 20\d\d-\d\d-\d\d \d\d:\d\d UTC$`,
		`(?m)^- machine: .+, \d+ cores, Linux \d.+, cgroup (v1|v2|none)$`,
		`(?m)^- versions: caisson v9\.8\.7 \(commit .+\), gVisor .*, go1\.`,
		`(?m)^- load before: [\d.]+ [\d.]+ [\d.]+$`,
		`(?m)^- load after: [\d.]+ [\d.]+ [\d.]+$`,
		`(?m)^\| caisson version +\| (root|uid \d+) +\| \d+\.\d ms \(\d+–\d+\) +\| .* < 30 ms +\| 1 `,
		`(?m)^\| size of the binary +\| – +\| 0\.0 MB `,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no line matches %s in:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "\n| "); n != 3 {
		t.Errorf("%d lines of table, want a head and the two rows that were asked for:\n%s", n, out)
	}
}

func TestRunWritesNoFileUnasked(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := wholeTool(t, t.Context(), "-rows", "^size"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("made %v, %v", left, err)
	}
}

func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if out, err := wholeTool(t, ctx, "-rows", "^whole"); err == nil || out != "" {
		t.Errorf("error %v and output %q; want an error and half a table never", err, out)
	}
}

func TestRunWithoutBinary(t *testing.T) {
	_, err := wholeTool(t, t.Context(), "-caisson", "/nonexistent/caisson")
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("error %v, want what to do", err)
	}
}

// An interrupt ends what runs, with a signal that lets it clean up.
func TestCommandEndsWithItsContext(t *testing.T) {
	s := actors(t, `trap 'echo cleaned up >&2; exit 9' TERM; echo ready; while :; do :; done`, "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := s.caissonRun(ctx, s.users[0], "x")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.WaitDelay = 2 * time.Minute // until it is killed, which says nothing
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := cmd.Wait(); err == nil || stderr.String() != "cleaned up\n" {
		t.Errorf("ended with %v, having said %q", err, stderr.String())
	}
}

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, []byte("#!/bin/sh\nexit 4\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := install(from, to); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(to)
	if err != nil || st.Mode().Perm()&0o005 != 0o005 {
		t.Errorf("mode %v, %v: others cannot execute it", st.Mode(), err)
	}
	if err := exec.Command(to).Run(); err == nil || err.Error() != "exit status 4" {
		t.Errorf("the copy ended with %v", err)
	}
	if err := install(from, to); err == nil {
		t.Error("what was there is overwritten")
	}
}
