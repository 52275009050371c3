// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// What is known is not said again; what is worse than known is, with all of it.
func TestLacking(t *testing.T) {
	held := func(h ...session.Held) session.Lacking { return session.Lacking{Limits: h} }
	cpus, memory, gone := session.Held{Limit: "cpus", How: sandbox.Off}, session.Held{Limit: "memory", How: sandbox.Emulated}, session.Held{Limit: "memory", How: sandbox.Off}
	for _, tc := range []struct {
		known string
		l     session.Lacking
		hint  string // empty says nothing
	}{
		{"", held(cpus, memory), "cpus is off, memory is emulated"},
		{"cpus=off,memory=emulated", held(cpus, memory), ""},
		{" cpus=off , memory=off,", held(cpus, memory), ""},
		{"cpus=off,memory=emulated", held(cpus, gone), "cpus is off, memory is off"},
		{"cpus=off", held(cpus, memory), "cpus is off, memory is emulated"},
	} {
		t.Setenv(acceptEnv, tc.known)
		known, err := accepted()
		if err != nil {
			t.Fatal(err)
		}
		said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		state := t.TempDir()
		(&app{err: said}).lacking(state, known, tc.l)
		(&app{err: said}).lacking(state, known, tc.l) // once for a state directory
		text, err := os.ReadFile(said.Name())
		if err = errors.Join(err, said.Close()); err != nil {
			t.Fatal(err)
		}
		if got := string(text); (got == "") != (tc.hint == "") || !strings.Contains(got, tc.hint) || strings.Count(got, "\n") > 1 {
			t.Errorf("%q, known %q: %q", tc.l, tc.known, got)
		}
	}
}

func TestAccepted(t *testing.T) {
	for _, text := range []string{"x", "cpus", "cpus=enforced", "cpus=", "=off", "CPUs=off", "cpus=off;memory=off"} {
		t.Setenv(acceptEnv, text)
		if _, err := accepted(); !errors.Is(err, sandbox.ErrInvalid) || sandbox.Hint(err) == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What gets worse is said again in a state directory that knows less.
func TestLackingMore(t *testing.T) {
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	state := t.TempDir()
	for _, how := range []sandbox.Enforcement{sandbox.Emulated, sandbox.Off, sandbox.Off} {
		(&app{err: said}).lacking(state, nil, session.Lacking{Limits: []session.Held{{Limit: "memory", How: how}}})
	}
	if text, err := os.ReadFile(said.Name()); err != nil || strings.Count(string(text), "\n") != 2 {
		t.Errorf("%q, %v", text, err)
	}
}
