// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
)

// offersRoot gives the template base root, under a policy of these lines, or
// none.
func offersRoot(t *testing.T, lines string) func(*persistent.SandboxesOptions) {
	return func(o *persistent.SandboxesOptions) {
		o.Templates = map[string]persistent.Template{persistent.BaseTemplate: {Root: true}}
		o.Policies, o.EndOnClose = nil, true
		if lines != "" {
			file, err := policy.Parse("test.yaml", []byte("version: 1\n"+lines+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			o.Policies = map[string]*policy.File{"": file}
		}
	}
}

func asRoot(l *living, t *testing.T, id, line string) (*sandbox.Result, error) {
	c := &session.Call{}
	c.Argv, c.Root = []string{"sh", "-c", line}, true
	return l.Handle(l.key, id).Exec(t.Context(), c, session.IO{})
}

// Programs are root where a template offers it, no policy forbids it, and the
// level's root is not the host's; also in a copy.
func TestTemplateRootOnGVisor(t *testing.T) {
	l := openLiving(t, filepath.Join(t.TempDir(), "state"), "gvisor", offersRoot(t, ""))
	s, err := l.Create(t.Context(), l.key, persistent.Create{})
	if err != nil {
		t.Fatal(err)
	}
	facts := "id -u; echo $HOME; "
	// What only the host's root may read stays so.
	if secret, err := os.CreateTemp("/usr/local/share", "caisson-test-"); err == nil { // mode 0600
		secret.Close()
		t.Cleanup(func() { os.Remove(secret.Name()) })
		facts += "ls " + filepath.Dir(secret.Name()) + " | grep -c " + filepath.Base(secret.Name()) + "; cat " + secret.Name() + " 2>/dev/null || echo closed"
	} else if os.Geteuid() == 0 {
		t.Fatal(err)
	} else {
		facts += "echo 1; echo closed"
	}
	check := func(id string) {
		t.Helper()
		res, err := asRoot(l, t, id, facts)
		if err != nil || string(res.Stdout) != "0\n/root\n1\nclosed\n" {
			t.Fatalf("root: %+v, %v", res, err)
		}
		// By both ways to a program: set-user-id programs work.
		if got := l.sh(t, id, "id -u; echo $HOME; grep NoNewPrivs /proc/self/status"); got != "1000\n/home/user\nNoNewPrivs:\t0" {
			t.Errorf("the user says %q", got)
		}
	}
	check(s.ID)
	if !s.Posture.Root {
		t.Error("its posture hides that it may have root")
	}
	forks, err := l.Handle(l.key, s.ID).Fork(t.Context(), 1, 0)
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	check(forks[0].Sandbox.ID)
}

// Everywhere else root is refused by name, and the sandbox has none.
func TestTemplateRootIsBounded(t *testing.T) {
	for _, c := range []struct{ name, level, policy, says string }{
		{"a silent policy", "gvisor", "isolation: gvisor", "does not allow root"},
		{"a policy that names the user", "gvisor", "user: user", "not root"},
		{"a level without root", "process", "", "does not allow root"},
		{"a sudoer on a level without root", "process", "isolation: process\nuser: sudoer", "run as its user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			system, err := policy.Parse("system.yaml", []byte("version: 1\nisolation: "+c.level+"\nuser: root\n"))
			if err != nil {
				t.Fatal(err)
			}
			l := openLiving(t, filepath.Join(t.TempDir(), "state"), c.level, offersRoot(t, c.policy), func(o *persistent.SandboxesOptions) { o.System = system })
			s, err := l.Create(t.Context(), l.key, persistent.Create{})
			if err != nil {
				t.Fatal(err)
			}
			if s.Posture.Root || s.Sudo {
				t.Errorf("it may have root: %+v", s)
			}
			_, err = asRoot(l, t, s.ID, "true")
			if (!errors.Is(err, sandbox.ErrDenied) && !errors.Is(err, sandbox.ErrUnsupported)) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("root: %v", err)
			}
			if _, err := l.Handle(l.key, s.ID).Files("e2b", "root").Stat(t.Context(), "/root"); err == nil {
				t.Error("it has files of root's")
			}
		})
	}
}

// A sandbox does not keep a root that its key's policy has taken back.
func TestTemplateRootIsTakenBack(t *testing.T) {
	for name, had := range map[string]string{"no policy": "", "a sudoer": "user: sudoer"} {
		t.Run(name, func(t *testing.T) { rootIsTakenBack(t, had) })
	}
}

func rootIsTakenBack(t *testing.T, had string) {
	dir := filepath.Join(t.TempDir(), "state")
	var s *persistent.Sandbox
	t.Run("with", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor", offersRoot(t, had))
		var err error
		if s, err = l.Create(t.Context(), l.key, persistent.Create{}); err != nil {
			t.Fatal(err)
		}
		if _, err = l.Handle(l.key, s.ID).Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if t.Failed() {
		return
	}
	t.Run("without", func(t *testing.T) {
		l := openLiving(t, dir, "gvisor", offersRoot(t, "user: user"))
		if _, err := l.Handle(l.key, s.ID).Resume(t.Context(), 0); !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), "root") {
			t.Errorf("it goes on: %v", err)
		}
		if err := l.Handle(l.key, s.ID).Kill(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
