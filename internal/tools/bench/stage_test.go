// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

// actors makes a stage whose two programs are shell scripts.
func actors(t *testing.T, caisson, runsc string) *stage {
	t.Helper()
	dir := t.TempDir()
	o, err := parse([]string{"-n", "2", "-caisson", filepath.Join(dir, "caisson"), "-runsc", filepath.Join(dir, "runsc")}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{o.caisson: caisson, o.runsc: runsc} {
		if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newStage(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", s.dir, err)
		}
	})
	return s
}

// Both sides run as the user of the row, in a state directory that is this
// user's alone.
func TestWholeRunsAsItsUser(t *testing.T) {
	s := actors(t, `echo "$(id -u) $* $(stat -c %u:%a "$CAISSON_STATE")" >&2; exit 1`, `echo "$(id -u) $*" >&2; exit 1`)
	for _, u := range s.users {
		for _, cmd := range []struct{ got, want string }{
			{stderrOf(t, s, u, true), "ID run -- /bin/x y ID:700"},
			{stderrOf(t, s, u, false), "ID --root=" + u.runscDir + " --network=none ROOTLESSdo --quiet /bin/x y"},
		} {
			want := strings.ReplaceAll(cmd.want, "ID", strings.TrimPrefix(strings.Replace(u.name, "root", "uid 0", 1), "uid "))
			rootless := ""
			if u.uid != 0 {
				rootless = "--rootless "
			}
			if want = strings.Replace(want, "ROOTLESS", rootless, 1); cmd.got != want {
				t.Errorf("as %s: %q, want %q", u.name, cmd.got, want)
			}
		}
	}
	if os.Geteuid() == 0 && (len(s.users) != 2 || s.users[1].uid != nobody) {
		t.Errorf("root measures for %+v, want root and nobody", s.users)
	}
}

func stderrOf(t *testing.T, s *stage, u user, ours bool) string {
	t.Helper()
	cmd := s.runscDo(t.Context(), u, "/bin/x", "y")
	if ours {
		cmd = s.caissonRun(t.Context(), u, "/bin/x", "y")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil {
		t.Error("a program that failed was taken for one that did not")
	}
	return strings.TrimSpace(stderr.String())
}

func TestWholeReportsFailures(t *testing.T) {
	s := actors(t, "echo 'no cgroup | here' >&2; exit 125", "exit 0")
	r := s.whole(s.users[0], "/bin/true").measure(t.Context())
	if r.ratio != "" || r.runs != "0" || len(r.notes) != 1 || !strings.Contains(r.notes[0], "no cgroup | here") {
		t.Errorf("%+v", r)
	}
}

func TestFlooded(t *testing.T) {
	// The shell itself grows by about 8 MB after its first output. It waits until its memory
	// has been looked at, twice: the first look may have begun before.
	s := actors(t, `look() { for i in 1 2; do rm -f "$1"; until [ -e "$1" ]; do sleep 0.01; done; done; }
cd "$HOME"; look idle; echo start; look printing; x=$(head -c 8000000 /dev/zero | tr '\0' x); look printing; echo "$x"`, "")
	s.looked = func(printing bool) {
		name := "idle"
		if printing {
			name = "printing"
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(s.users[0].state), name), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	r := s.flooded(t.Context())
	idle, growth, ok := strings.Cut(r.ours, ", most +")
	if !ok || !strings.HasPrefix(idle, "idle ") {
		t.Fatalf("%+v", r)
	}
	if mbs, _, _ := strings.Cut(growth, "."); len(mbs) < 1 || mbs == "0" || mbs == "1" {
		t.Errorf("growth %s MB, want about 8", growth)
	}
}

// A flood that broke off must not look like one that stayed small.
func TestFloodedThatFails(t *testing.T) {
	s := actors(t, "echo the disk is full >&2; exit 125", "")
	r := s.flooded(t.Context())
	if r.ours != "" || len(r.notes) != 2 || !strings.Contains(r.notes[0], "the disk is full") {
		t.Errorf("%+v", r)
	}
	s = actors(t, "exit 0", "")
	if r := s.flooded(t.Context()); r.ours != "" || !strings.Contains(r.notes[0], "before its memory could be read") {
		t.Errorf("%+v", r)
	}
}

func TestResidentBytes(t *testing.T) {
	for status, want := range map[string]int64{
		"Name:\tx\nVmRSS:\t   12345 kB\nRssAnon:\t 1 kB\n": 12345 << 10,
		"VmRSS:\t0 kB\n": 0,
	} {
		if got, err := residentBytes(strings.NewReader(status)); err != nil || got != want {
			t.Errorf("%q: %d, %v", status, got, err)
		}
	}
	for _, status := range []string{"", "Name:\tzombie\n", "VmRSS:\t kB\n", "VmRSS:\t-x kB\n"} {
		if n, err := residentBytes(strings.NewReader(status)); err == nil {
			t.Errorf("%q was read as %d", status, n)
		}
	}
}

// The processor time of a run is that of its children too, which it waited for.
func TestProcessorTime(t *testing.T) {
	s := actors(t, `sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'`, "exit 0")
	r := s.whole(s.users[0], "/bin/true").measure(t.Context())
	ours, _, ok := strings.Cut(r.cpu, " : ")
	if n, err := strconv.Atoi(ours); !ok || err != nil || n < 10 {
		t.Errorf("processor time %q, want at least 10 ms for a loop in a grandchild", r.cpu)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-short"}, io.Discard)
	if err != nil || o.pairs != 10 || o.rounds != 2 || o.flood != 1e9 || o.out != "" {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"x"}, {"-n", "0"}, {"-n", "-1"}, {"-n", "100000"}, {"-rows", "("}, {"-fast"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestMachine(t *testing.T) {
	if got := modelName(strings.NewReader("processor\t: 0\nmodel\t: 1\nmodel name\t: A: B\nmodel name\t: C\n")); got != "A: B" {
		t.Errorf("processor %q", got)
	}
	if got := modelName(strings.NewReader("CPU implementer : 0x41\n")); !strings.HasSuffix(got, " processor") {
		t.Errorf("processor %q", got)
	}
	info := &debug.BuildInfo{Deps: []*debug.Module{{Path: "x", Version: "v1"}, {Path: gvisorModule, Version: "v2"}}}
	if got := moduleVersion(info); got != "v2" {
		t.Errorf("version %q", got)
	}
	info.Deps[1].Replace = &debug.Module{Path: "y", Version: "v3"}
	if got := moduleVersion(info); got != "v3" {
		t.Errorf("version %q of a replaced module", got)
	}
}

// The program says when it began to write, and when all of it was taken: what it writes is
// more than lies in a pipe, so the first byte was read by then, however late that was.
func TestFirstByte(t *testing.T) {
	s := actors(t, "exit 1", `cd "$HOME"; date +%s%N >up; date +%s%N >writing; head -c 1000000 /dev/zero; date +%s%N >taken`)
	u := s.users[0]
	began := time.Now()
	first, err := s.runscFirstByte(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) time.Time {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(filepath.Dir(u.state), name))
		if err != nil {
			t.Fatal(err)
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Unix(0, ns)
	}
	if minimum, maximum := at("writing").Sub(at("up")), at("taken").Sub(began); first.wall < minimum || first.wall > maximum {
		t.Errorf("first byte after %v, want %v to %v", first.wall, minimum, maximum)
	}
	quiet := actors(t, "", "exit 0")
	if _, err := quiet.runscFirstByte(t.Context(), quiet.users[0]); err == nil {
		t.Error("a program that printed nothing has a first byte")
	}
}
