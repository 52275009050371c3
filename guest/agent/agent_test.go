// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/guest/wire"
)

func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		line string
		want stat
		ok   bool
	}{
		{"7 (bash) S 1 7 7 0 -1", stat{7, 1, 7, 7, false}, true},
		{"7 (a) b) (c) R 3 4 5 0", stat{7, 3, 4, 5, false}, true},
		{"7 (x) S 1 2 3) R 9 8 7 0", stat{7, 9, 8, 7, false}, true},
		{"7 (bash) Z 1 7 7 0 -1", stat{7, 1, 7, 7, true}, true},
		{"7 (bash) S 1", stat{}, false},
		{"7 (bash) S a b c", stat{}, false},
		{"", stat{}, false},
	} {
		got, ok := parseStat(7, []byte(tt.line))
		if got != tt.want || ok != tt.ok {
			t.Errorf("%q: %+v, %v", tt.line, got, ok)
		}
	}
}

func TestCandidates(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		want []string
	}{
		{"/bin/sh", []string{"PATH=/x"}, []string{"/bin/sh"}},
		{"./run", nil, []string{"./run"}},
		{"sh", []string{"PATH=/a:/b"}, []string{"/a/sh", "/b/sh"}},
		{"sh", []string{"PATH=/a::"}, []string{"/a/sh", "./sh", "./sh"}},
		{"sh", nil, []string{"/usr/local/bin/sh", "/usr/bin/sh", "/bin/sh"}},
	} {
		if d := cmp.Diff(tt.want, candidates(tt.name, tt.env)); d != "" {
			t.Errorf("%s in %v: %s", tt.name, tt.env, d)
		}
	}
}

func TestRlimits(t *testing.T) {
	var now syscall.Rlimit
	if err := prlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	var pending syscall.Rlimit
	if err := prlimit(sigpending, &pending); err != nil {
		t.Fatal(err)
	}
	got, err := rlimits(wire.Limits{OpenFiles: now.Max + 1, CPU: 3})
	if err != nil {
		t.Fatal(err)
	}
	want := map[uintptr]syscall.Rlimit{
		syscall.RLIMIT_CORE:   {},
		syscall.RLIMIT_NOFILE: {Cur: now.Max, Max: now.Max}, // asking for more raises nothing
		syscall.RLIMIT_CPU:    {Cur: 3, Max: 4},
		sigpending:            {Cur: pending.Max / 2, Max: pending.Max / 2}, // the agents of all keep the rest
	}
	set := make(map[uintptr]syscall.Rlimit)
	for _, l := range got {
		set[l.resource] = l.value
	}
	if d := cmp.Diff(want, set); d != "" {
		t.Error(d)
	}
}

func TestUserPath(t *testing.T) {
	u := user{home: "/home/user"}
	for in, want := range map[string]string{
		"~": "/home/user", "~/a": "/home/user/a", "a/../b": "/home/user/b", "/a/../b": "/b", "../../..": "/",
	} {
		if got, err := u.path(in); err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "a\x00b", "~x", "~root/a"} {
		if _, err := u.path(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestLookUp(t *testing.T) {
	f := t.TempDir() + "/passwd"
	if err := os.WriteFile(f, []byte("broken\nroot:x:0:0::/root:/bin/sh\nbad:x:y:0::/:\nann:x:1001:1002:A:/home/ann:/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, known := lookUp(f, "ann"); !known || got != (user{1001, 1002, "ann", "/home/ann"}) {
		t.Errorf("ann is %+v, %v", got, known)
	}
	for _, nobody := range []string{"bad", "broken", "eve", ""} {
		if got, known := lookUp(f, nobody); known {
			t.Errorf("%q is %+v", nobody, got)
		}
	}
}

func TestParseFlags(t *testing.T) {
	o, _, err := parseFlags([]string{"-user", "1000:100:user:/home/user", "-stay", "1m"})
	if err != nil || o.UID != 1000 || o.GID != 100 || o.Name != "user" || o.Home != "/home/user" || o.Stay.Minutes() != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	_, start, err := parseFlags([]string{"-stdio", "-map", "5:6:7:8"})
	if err != nil || !start.pipes || start.inner || *start.ids != (ids{5, 6, 7, 8}) {
		t.Errorf("%+v, %v", start, err)
	}
	for _, bad := range [][]string{{"-user", "1000"}, {"-map", "1:2:3"}, {"-map", "0:1:2:3"}, {"-map", "1:2:3:-4"}, {"-map", "1:2:3:4294967296"}} {
		if _, _, err := parseFlags(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

// Without a pid namespace of its own, the agent must never signal "everything".
func TestSignalAllNeedsToBeInit(t *testing.T) {
	if err := signalAll(0); err == nil {
		t.Error("an agent that is not init signals all")
	}
}

// Whatever JSON arrives, a start either fails its check or can be prepared.
func FuzzStartRequest(f *testing.F) {
	f.Add([]byte(`{"argv":["sh","-c","x"],"dir":"/","env":["A=b"],"uid":1000,"terminal":{"rows":1,"cols":2}}`))
	f.Add([]byte(`{"argv":["\u0000"],"dir":"/"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r wire.StartRequest
		if json.Unmarshal(b, &r) != nil || r.Check() != nil {
			return
		}
		c, err := newChild(&r)
		if err != nil {
			return
		}
		if len(c.argv) != len(r.Argv)+1 || len(c.paths) == 0 || c.dir == nil || len(c.envv) != len(r.Env)+1 {
			t.Errorf("%+v makes %+v", r, c)
		}
	})
}

// The same for envd's envelope.
func FuzzEnvelope(f *testing.F) {
	a := New(Options{UID: 1000, GID: 1000, Name: "user", Home: "/home/user"})
	f.Add(wire.AppendFrame(nil, 0, []byte(`{"process":{"cmd":"/bin/bash","args":["-l"],"envs":{"A":"b","PATH":"/x"},"cwd":"~/a"},"pty":{"size":{"cols":1,"rows":2}}}`)))
	f.Add([]byte{0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		var q wire.ProcessStart
		if readEnvelope(bytes.NewReader(b), &q) != nil {
			return
		}
		r, err := a.request(&q, user{1000, 1000, "user", "/home/user"})
		if err != nil {
			return
		}
		if r.UID != 1000 || r.GID != 1000 || r.NewPrivileges {
			t.Errorf("it chooses its own rights: %+v", r)
		}
		if r.Check() == nil && q.Process.Envs["PATH"] != "" && !slices.Contains(r.Env, "PATH="+q.Process.Envs["PATH"]) {
			t.Errorf("its PATH is lost: %q", r.Env)
		}
	})
}

// A form's file names hold what the form says, directories included.
func FuzzFileName(f *testing.F) {
	f.Add(`form-data; name="file"; filename="a/b.txt"`)
	f.Add(`form-data; name="file"; filename*=UTF-8''%2e%2e%2fx`)
	u := user{home: "/home/user"}
	f.Fuzz(func(t *testing.T, disposition string) {
		isFile, name := fileName(disposition)
		if !isFile && name != "" {
			t.Errorf("%q is %q", disposition, name)
		}
		if p, err := u.path(name); err == nil && (!path.IsAbs(p) || path.Clean(p) != p || strings.Contains(p, "\x00")) {
			t.Errorf("%q leads to %q", disposition, p)
		}
	})
}

func TestFileName(t *testing.T) {
	for disposition, want := range map[string]string{
		`form-data; name="file"; filename="a/b.txt"`:      "a/b.txt",
		`form-data; name="file"; filename="/etc/x"`:       "/etc/x",
		`form-data; name=file; filename="a \"b\""`:        `a "b"`,
		`form-data; name="file"; filename*=UTF-8''%C3%BC`: "ü",
		`form-data; name="file"`:                          "",
		`form-data; name="other"; filename="a"`:           "-",
		`nonsense; ;`:                                     "-",
	} {
		isFile, name := fileName(disposition)
		if !isFile {
			name = "-"
		}
		if name != want {
			t.Errorf("%s is %q, want %q", disposition, name, want)
		}
	}
}

func FuzzNextEvent(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00ab\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			_, rest, err := nextEvent(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatal("it takes nothing")
			}
			b = rest
		}
	})
}

// TestReadOnly: what cannot be written since it is shown read-only is refused, and is
// no failure of the agent's.
func TestReadOnly(t *testing.T) {
	err := &os.PathError{Op: "mkdir", Path: "/usr/x", Err: syscall.EROFS}
	if c := asConnect(err); c.Code != codePermission {
		t.Errorf("as a message: %+v", c)
	}
	w := httptest.NewRecorder()
	writeFileError(w, err)
	if w.Code != http.StatusForbidden {
		t.Errorf("as a file's status: %d %s", w.Code, w.Body)
	}
}
