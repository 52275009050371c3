// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

func TestShellCode(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       int
		ok         bool
	}{
		{"not in PATH", `starting container: starting root container: creating process: failed to find initial executable: error finding executable "x" in PATH [/usr/bin]: no such file or directory`, 127, true},
		{"no such path", `creating process: failed to load /x: no such file or directory`, 127, true},
		{"a directory", `creating process: failed to load /usr: permission denied`, 126, true},
		{"not a program", `creating process: failed to load /x: exec format error`, 126, true},
		{"a name too long", `starting sandbox: error finding executable "xx" in PATH [/usr/bin]: file name too long`, 126, true},
		{"a link to itself", `creating process: failed to load /x: too many levels of symbolic links`, 126, true},
		{"a link through /proc/self", `creating process: failed to load /bin/hello: invalid argument`, 127, true},
		{"the sandbox itself", `cannot create sandbox: open /x: no such file or directory`, 0, false},
		{"nothing", "", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if code, ok := shellCode(tc.text); code != tc.want || ok != tc.ok {
				t.Errorf("shellCode = %d, %v; want %d, %v", code, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestResult(t *testing.T) {
	for _, tc := range []struct {
		name   string
		event  protocol.Event
		status sandbox.Status
		code   int // -1: none
		signal string
	}{
		{"success", protocol.Event{}, sandbox.StatusSuccess, 0, ""},
		{"exit 3", protocol.Event{WaitStatus: 3 << 8}, sandbox.StatusError, 3, ""},
		{"segfault", protocol.Event{WaitStatus: uint32(unix.SIGSEGV)}, sandbox.StatusError, -1, "SIGSEGV"},
		{"memory", protocol.Event{WaitStatus: uint32(unix.SIGKILL), Limit: "memory"}, sandbox.StatusResourceExceeded, -1, "SIGKILL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := result(&tc.event)
			code := -1
			if r.ExitCode != nil {
				code = *r.ExitCode
			}
			if r.Status != tc.status || code != tc.code || r.Signal != tc.signal || string(r.Resource) != tc.event.Limit {
				t.Errorf("result %+v, exit code %d", r, code)
			}
			if r.CPUMS != nil || r.MemoryPeakBytes != nil {
				t.Error("figures that nobody measured are there")
			}
		})
	}
}

func TestLayerBelowOddNames(t *testing.T) {
	for state, cow := range map[string]bool{"/a:b/run/x": true, "/a,size=1/run/x": true, "/a:b,c": false, "/a b": true} {
		spec := &sandbox.Spec{StateDir: state}
		if cow {
			spec.Mounts = []sandbox.Mount{{Name: "a", Target: "/a", Access: sandbox.CopyOnWrite, Dir: true}}
		}
		_, err := newPlan(spec, first{argv: []string{"true"}}, identity{})
		if refused := state != "/a b" && cow; refused != errors.Is(err, sandbox.ErrUnsupported) || refused != (err != nil) {
			t.Errorf("%s, copy-on-write %t: %v", state, cow, err)
		}
	}
}

func TestPseudoVersionDate(t *testing.T) {
	for version, want := range map[string]string{
		"v0.0.0-20260905035102-160fafc42237": "2026-09-05",
		"v1.2.3":                             "0001-01-01",
		"v0.0.0-x-y":                         "0001-01-01",
		"":                                   "0001-01-01",
	} {
		if got := pseudoVersionDate(version).Format("2006-01-02"); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
