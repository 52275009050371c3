// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"errors"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

func TestRunEnds(t *testing.T) {
	c := newClient(t)
	for _, tt := range []struct {
		name   string
		exec   *sandbox.Exec
		code   int // -1: none
		signal string
		kind   error
		out    string
	}{
		{name: "success", exec: shell("echo hi"), out: "hi\n"},
		{name: "its own code", exec: shell("exit 7"), code: 7},
		{name: "its own signal", exec: shell("kill -SEGV $$"), code: -1, signal: "SIGSEGV"},
		{name: "looked up in its PATH", exec: &sandbox.Exec{Argv: []string{"env"}, Dir: "/", Env: []string{"PATH=/nowhere:/usr/bin", "A=b c"}}, out: "PATH=/nowhere:/usr/bin\nA=b c\n"},
		{name: "not in its PATH", exec: &sandbox.Exec{Argv: []string{"env"}, Dir: "/", Env: []string{"PATH=/nowhere"}}, code: 127, kind: sandbox.ErrNotFound},
		{name: "missing", exec: program("no-such-command"), code: 127, kind: sandbox.ErrNotFound},
		{name: "missing file", exec: program("/no/such/file"), code: 127, kind: sandbox.ErrNotFound},
		{name: "not executable", exec: program("/etc/hostname"), code: 126, kind: sandbox.ErrInvalid},
		{name: "a directory", exec: program("/etc"), code: 126, kind: sandbox.ErrInvalid},
		{name: "no working directory", exec: &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/no/where"}, code: -1, kind: sandbox.ErrInvalid},
		{name: "a closed working directory", exec: &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/root"}, code: -1, kind: sandbox.ErrInvalid},
		{name: "a relative working directory", exec: &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "x"}, code: -1, kind: sandbox.ErrInvalid},
		{name: "NUL in an argument", exec: program("/bin/echo", "a\x00b"), code: -1, kind: sandbox.ErrInvalid},
		{name: "nothing", exec: &sandbox.Exec{Dir: "/"}, code: -1, kind: sandbox.ErrInvalid},
		{name: "not a variable", exec: &sandbox.Exec{Argv: []string{"/bin/true"}, Dir: "/", Env: []string{"novalue"}}, code: -1, kind: sandbox.ErrInvalid},
		{name: "no stdin", exec: program("cat"), out: ""},
		{name: "python", exec: program("/usr/bin/python3", "-c", "print(2**100)"), out: "1267650600228229401496703205376\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := run(t, c, tt.exec)
			if !errors.Is(err, tt.kind) {
				t.Fatalf("error %v, want kind %v", err, tt.kind)
			}
			code := -1
			if got.Code != nil {
				code = *got.Code
			}
			if code != tt.code || got.Signal != tt.signal {
				t.Errorf("exit %d %q, want %d %q", code, got.Signal, tt.code, tt.signal)
			}
			if tt.kind == nil && got.out != tt.out {
				t.Errorf("stdout %q, want %q", got.out, tt.out)
			}
		})
	}
}
