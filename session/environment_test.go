// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// built is the environment that a call gets.
func built(t *testing.T, change func(*Call)) (spec sandbox.Spec, exec sandbox.Exec) {
	t.Helper()
	d := &stub{caps: func(c *sandbox.Capabilities) { c.Root = true }}
	d.prog = func(_ context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
		spec, exec = *s, *x
		return exited(0), nil
	}
	b := newBench(t, d, nil)
	res, err := b.Do(t.Context(), call(t, change), IO{})
	if err != nil || res.Status != sandbox.StatusSuccess {
		t.Fatalf("got %+v, %v", res, err)
	}
	return spec, exec
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEnvironmentIsKnown(t *testing.T) {
	t.Setenv("SECRET", "x")
	_, x := built(t, func(c *Call) { c.Env = map[string]string{"MODE": "test"} })
	want := []string{"GOMAXPROCS=1", "HOME=/home/user", "LC_CTYPE=C.UTF-8", "LOGNAME=user", "MODE=test", "NODE_OPTIONS=--max-old-space-size=192", "OMP_NUM_THREADS=1",
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", "USER=user"}
	if diff := cmp.Diff(want, x.Env); diff != "" {
		t.Error(diff)
	}
	for _, own := range []string{"LANG", "LC_ALL", "LC_CTYPE"} { // a caller who sets one locale variable sets all
		_, x = built(t, func(c *Call) { c.Env = map[string]string{own: "de_DE.UTF-8"} })
		if slices.Contains(x.Env, "LC_CTYPE=C.UTF-8") || !slices.Contains(x.Env, own+"=de_DE.UTF-8") {
			t.Errorf("with %s: %q", own, x.Env)
		}
	}
	_, x = built(t, func(c *Call) {
		c.Env = map[string]string{"OMP_NUM_THREADS": "7", "NODE_OPTIONS": ""}
	})
	if !slices.Contains(x.Env, "OMP_NUM_THREADS=7") || !slices.Contains(x.Env, "NODE_OPTIONS=") {
		t.Errorf("with variables of its own: %q", x.Env)
	}
	_, x = built(t, func(c *Call) {
		c.Limits = sandbox.Limits{Memory: 1 << 30, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true}}
	})
	if slices.ContainsFunc(x.Env, func(v string) bool { return strings.HasPrefix(v, "NODE_OPTIONS") }) {
		t.Errorf("with memory for V8's own bound: %q", x.Env)
	}
	_, x = built(t, func(c *Call) { c.TTY, c.Term = &sandbox.Terminal{}, "../../evil" })
	if !slices.Contains(x.Env, "TERM=xterm-256color") {
		t.Errorf("a terminal's name that is a path: %q", x.Env)
	}
}

func TestScratch(t *testing.T) {
	s, _ := built(t, limited(func(l *sandbox.Limits) { l.Disk, l.Tmp, l.Memory, l.Inodes = 1<<20, 2<<20, 32<<20, 1000 },
		sandbox.LimitDisk, sandbox.LimitTmp, sandbox.LimitMemory, sandbox.LimitInodes))
	want := []sandbox.Scratch{
		{Target: "/home/user", Size: 1 << 20, Inodes: 500},
		{Target: "/tmp", Size: 2 << 20, Inodes: 500, Sticky: true},
		{Target: "/dev/shm", Size: 32 << 20, Memory: true, Sticky: true},
	}
	if diff := cmp.Diff(want, s.Scratch); diff != "" {
		t.Error(diff)
	}
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	os.MkdirAll(filepath.Join(dir, "pkg"), 0o755)
	inside := filepath.Join(dir, "pkg", "main.py")
	os.WriteFile(inside, []byte("x"), 0o644)
	script, shebang := file(t, "a.py", "print(1)"), file(t, "run-me", "#!/usr/bin/env ruby\n")
	for name, tc := range map[string]struct {
		call func(*Call)
		argv []string
		dir  string
	}{
		"command":          {func(*Call) {}, []string{"prog"}, "/home/user"},
		"workdir":          {func(c *Call) { c.Cwd = "/tmp" }, []string{"prog"}, "/tmp"},
		"code":             {func(c *Call) { c.Source = &Source{Language: "js", Code: []byte("1")}; c.Argv = []string{"a"} }, []string{"node", "/home/user/main.js", "a"}, "/home/user"},
		"file":             {func(c *Call) { c.File = script }, []string{"python3", "/home/user/a.py", "prog"}, "/home/user"},
		"file, language":   {func(c *Call) { c.File, c.FileLanguage = script, "sh" }, []string{"sh", "/home/user/a.py", "prog"}, "/home/user"},
		"shebang":          {func(c *Call) { c.File = shebang }, []string{"ruby", "/home/user/run-me", "prog"}, "/home/user"},
		"workspace":        {func(c *Call) { c.Workspace = &policy.MountWish{Source: dir} }, []string{"prog"}, "/workspace"},
		"file outside it":  {func(c *Call) { c.File = script; c.Workspace = &policy.MountWish{Source: dir} }, []string{"python3", "/tmp/a.py", "prog"}, "/workspace"},
		"file in it":       {func(c *Call) { c.File = inside; c.Workspace = &policy.MountWish{Source: dir} }, []string{"python3", "/workspace/pkg/main.py", "prog"}, "/workspace"},
		"name that is hit": {func(c *Call) { c.File = script; c.Mounts = []policy.MountWish{{Source: script}} }, []string{"python3", "/tmp/a.py", "prog"}, "/home/user"},
	} {
		t.Run(name, func(t *testing.T) {
			_, x := built(t, tc.call)
			if diff := cmp.Diff(tc.argv, x.Argv); diff != "" || x.Dir != tc.dir {
				t.Errorf("dir %s\n%s", x.Dir, diff)
			}
		})
	}
}

// What was judged is what runs, also when the file is changed meanwhile.
func TestSourceIsKept(t *testing.T) {
	script := file(t, "a.py", "print(1)")
	d := &stub{}
	d.prog = func(_ context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
		os.WriteFile(script, []byte("print(2)"), 0o644)
		m := s.Mounts[len(s.Mounts)-1]
		got, err := os.ReadFile(m.Source.Name())
		if err != nil || string(got) != "print(1)" || m.Access != sandbox.ReadOnly || m.Target != "/home/user/a.py" {
			t.Errorf("mount %+v has %q, %v", m, got, err)
		}
		return exited(0), nil
	}
	b := newBench(t, d, nil)
	if _, err := b.Do(t.Context(), call(t, func(c *Call) { c.File = script }), IO{}); err != nil {
		t.Fatal(err)
	}
	if r := b.last(t); r.Call.Code == nil || r.Call.Code.Size != 8 || r.Call.Kind != "run_code" {
		t.Errorf("record %+v", r.Call)
	}
}

func TestHiding(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"a/.env", ".env", "keys/id", "plain"} {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755)
		os.WriteFile(filepath.Join(dir, p), nil, 0o644)
	}
	s, _ := built(t, func(c *Call) {
		c.Mounts = []policy.MountWish{{Source: dir, Target: "/data"}}
		c.Deny = []string{"**/.env", "/data/keys"}
	})
	var got []string
	for _, m := range s.Masks {
		got = append(got, m.Target)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"/data/.env", "/data/a/.env", "/data/keys"}, got); diff != "" {
		t.Error(diff)
	}
}

// A read-write mount keeps what the host runs later, existing or not.
func TestProtecting(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"hooks", "objects", "refs"} {
		os.MkdirAll(filepath.Join(dir, ".git", d), 0o755)
	}
	for _, f := range []string{"HEAD", "config"} {
		os.WriteFile(filepath.Join(dir, ".git", f), []byte("ref: refs/heads/main\n"), 0o644)
	}
	s, _ := built(t, func(c *Call) { c.Workspace = &policy.MountWish{Source: dir, Access: sandbox.ReadWrite} })
	kept := map[string]sandbox.Access{}
	for _, m := range s.Mounts[1:] {
		kept[m.Target] = m.Access
	}
	for _, p := range []string{"/workspace/.git", "/workspace/.envrc", "/workspace/.vscode"} {
		if a, ok := kept[p]; !ok || a != sandbox.ReadOnly {
			t.Errorf("%s is not kept: %v", p, kept)
		}
	}
	s, _ = built(t, func(c *Call) {
		c.Workspace, c.Git = &policy.MountWish{Source: dir, Access: sandbox.ReadWrite}, policy.GitWrite
	})
	kept = map[string]sandbox.Access{}
	for _, m := range s.Mounts[1:] {
		kept[m.Target] = m.Access
	}
	for p, want := range map[string]sandbox.Access{"": sandbox.ReadWrite, "/config": sandbox.ReadOnly, "/hooks": sandbox.ReadOnly, "/objects": sandbox.ReadWrite, "/refs": sandbox.ReadWrite} {
		if a, ok := kept["/workspace/.git"+p]; !ok || a != want {
			t.Errorf(".git%s is %v, want %v: %v", p, a, want, kept)
		}
	}
	// The placeholders are gone.
	if _, err := os.Lstat(filepath.Join(dir, ".envrc")); !os.IsNotExist(err) {
		t.Errorf(".envrc was left: %v", err)
	}
}

// A directory of the operator's keeps its names; any other root has the sandbox's own.
func TestNamesOfRoot(t *testing.T) {
	for _, tt := range []struct {
		root string
		want registry.Names
	}{{"", registry.Names{Host: "sandbox-x", Machine: "y"}}, {tree(t), registry.Names{}}} {
		d := &stub{caps: func(*sandbox.Capabilities) {}}
		b := newBench(t, d, nil)
		call := call(t, func(c *Call) { c.Rootfs = tt.root })
		r := &Invocation{Session: b.Session, Call: call, ID: NewID(), Kind: policy.StartSandbox, Origin: Origin{Names: registry.Names{Host: "sandbox-x", Machine: "y"}}}
		v, err := r.Verdict()
		if err != nil || v.Decision != policy.Allow {
			t.Fatal(v, err)
		}
		r.Plan = v.Plan
		e, err := r.Prepare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := (registry.Names{Host: e.Spec.Hostname, Machine: e.Spec.MachineID}); got != tt.want {
			t.Errorf("%q: %+v", tt.root, got)
		}
		if err := r.Undo.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
