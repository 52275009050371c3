// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Git passes over placeholders in the repositories of a mount, whatever is in their
// names, and over nothing else; a user's own configuration goes on to count.
func TestGitPassesOver(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mount := filepath.Join(dir, `a [mount] "*"`)
	made := []string{".envrc", ".mcp.json", "in/.envrc", "in/.mcp.json", "hooks/a [b] ", "in/#!x"}
	e := &Environment{Spec: &sandbox.Spec{StateDir: dir}, o: Options{Plan: &policy.Plan{}, Host: &Host{Undo: &Cleanup{}}}}
	t.Cleanup(func() { e.o.Host.Undo.Run(t.Context()) })
	e.note(mount, made)
	if err := e.addGit(); err != nil {
		t.Fatal(err)
	}
	git := gitUnder(t, e, dir)
	write := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(dir, "other")
	for _, repository := range []string{mount, filepath.Join(mount, "in"), other} {
		if err := os.MkdirAll(repository, 0o755); err != nil {
			t.Fatal(err)
		}
		git(repository, "init", "-q")
		write(filepath.Join(repository, "new"))
		write(filepath.Join(repository, "sub/.envrc"))
	}
	for _, name := range made {
		write(filepath.Join(mount, name))
		write(filepath.Join(other, name))
	}
	for at, want := range map[string]string{mount: "?? in/\n?? new\n?? sub/.envrc", filepath.Join(mount, "in"): "?? new\n?? sub/.envrc"} {
		if got := git(at, "status", "--short", "--untracked-files=all"); got != want {
			t.Errorf("in %s there is %q, want %q", at, got, want)
		}
	}
	if got := git(other, "status", "--short", "--untracked-files=all"); strings.Count(got, "\n")+1 != len(made)+2 {
		t.Errorf("of a repository elsewhere it says %q", got)
	}
	write(filepath.Join(dir, "mine"))
	git(mount, "config", "--global", "core.excludesFile", filepath.Join(dir, "mine"))
	if got := git(mount, "status", "--short"); !strings.Contains(got, ".envrc") {
		t.Errorf("with a configuration of the user's own it says %q", got)
	}
}

// gitUnder is git with the configuration that e shows. Here its files lie where they were
// written, in dir.
func gitUnder(t *testing.T, e *Environment, dir string) func(at string, args ...string) string {
	t.Helper()
	config := ""
	for _, m := range e.Spec.Mounts {
		b, err := os.ReadFile(m.Name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(b), gitDir+"/", dir+"/")
		if err := os.WriteFile(m.Name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if m.Target == systemGit {
			config = m.Name
		}
	}
	return func(at string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = at
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_SYSTEM=" + config}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
}

// In a copy of a repository git finds that nothing was changed without reading a file, and
// still finds what was.
func TestGitInCopies(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	repository, mount := filepath.Join(dir, "host"), filepath.Join(dir, "mount")
	if err := os.Mkdir(repository, 0o755); err != nil {
		t.Fatal(err)
	}
	e := &Environment{Spec: &sandbox.Spec{StateDir: dir}, o: Options{Plan: &policy.Plan{}, Host: &Host{Undo: &Cleanup{}}}}
	t.Cleanup(func() { e.o.Host.Undo.Run(t.Context()) })
	e.git = []gitMount{{target: mount, copied: true}}
	if err := e.addGit(); err != nil {
		t.Fatal(err)
	}
	git := gitUnder(t, e, dir)
	for _, name := range []string{"same", "other"} {
		if err := os.WriteFile(filepath.Join(repository, name), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(repository, "init", "-q")
	git(repository, "add", ".")
	if out, err := exec.Command("cp", "-a", repository, mount).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// diff-files reads nothing: it tells what does not look like the index's.
	if got := git(mount, "diff-files", "--name-only"); got != "" {
		t.Errorf("it would read %q", got)
	}
	if err := os.WriteFile(filepath.Join(mount, "other"), []byte("another text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := git(mount, "status", "--short"); got != "A  same\nAM other" && got != "AM other\nA  same" {
		t.Errorf("status is %q", got)
	}
}

func TestGoFlags(t *testing.T) {
	for _, tc := range []struct{ have, want []string }{
		{nil, []string{"GOFLAGS=-buildvcs=false"}},
		{[]string{"A=b", "GOFLAGS=-mod=mod"}, []string{"A=b", "GOFLAGS=-mod=mod -buildvcs=false"}},
	} {
		e := &Environment{Spec: &sandbox.Spec{}, ImageEnv: tc.have, o: Options{Plan: &policy.Plan{}}}
		e.note("/workspace", []string{".git"})
		if err := e.addGit(); err != nil || !slices.Equal(e.ImageEnv, tc.want) || len(e.Spec.Mounts) > 0 {
			t.Errorf("%q, %v, want %q", e.ImageEnv, err, tc.want)
		}
	}
}
