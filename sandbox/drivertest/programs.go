// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

var programTests = []test{
	{name: "only listed programs are executed", run: testExecutables},
	{name: "only listed programs of an image are executed", run: testImageExecutables},
	{name: "only listed programs are executed after a snapshot", run: testExecutablesKept, only: living},
}

// real is a program of the host's toolchain by its own name, and its loader.
func real(t *testing.T, name string) (program, loader string) {
	t.Helper()
	program, err := filepath.EvalSymlinks(name)
	if err != nil {
		t.Fatal(err)
	}
	if loader, err = filepath.EvalSymlinks(loaderOf(t, program)); err != nil {
		t.Fatal(err)
	}
	return program, loader
}

// loaderOf is the loader that a program names.
func loaderOf(t *testing.T, program string) string {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(p.Open())
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimRight(string(b), "\x00")
		}
	}
	t.Fatalf("%s has no loader", program)
	return ""
}

// libm is a library of the host's that no program of the list has mapped already.
func libm(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"libm.so.6", "libresolv.so.2"} {
		for _, dir := range []string{"/lib/x86_64-linux-gnu/", "/lib/aarch64-linux-gnu/", "/lib64/", "/usr/lib/"} {
			if _, err := os.Stat(dir + name); err == nil {
				return dir + name
			}
		}
	}
	t.Fatal("this host has no libm")
	return ""
}

// testExecutables: what is listed runs, and nothing else does, by whatever way it
// is reached.
func testExecutables(t *testing.T, s *suite, r road) {
	dir := s.evade(t)
	x := listed(t)
	list := func(spec *sandbox.Spec) { spec.Executables = x }
	if !s.caps.Executables {
		w := s.fixture(t, list)
		if res, err := r.run(timeout(t), w.spec, w.exec("true")); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("the level does not hold a list of programs, and takes one: %+v, %v", res, err)
		}
		s.lacks(t, "does not look at what is executed")
	}
	// What is listed works, libraries, /tmp and /dev/null included.
	w := s.fixture(t, list, mount(t, dir, "/data", sandbox.ReadWrite))
	o := w.run(t, r, "sh", "-c", `echo one > /tmp/f && cat /tmp/f /data/listed > /dev/null && cat /tmp/f && python3 -I -S -c 'import os; os.write(1, b"two\n"); os.mkdir("/tmp/d"); os.rename("/tmp/f", "/tmp/d/f")' && cat < /tmp/d/f`).ok(t)
	if o.out != "one\ntwo\none\n" {
		t.Errorf("what is listed: %q, %q", o.out, o.errs)
	}
	w = s.fixture(t, list, mount(t, dir, "/data", sandbox.ReadWrite))
	for what, through := range evaded(t, w.run(t, r, "sh", "/data/all").ok(t).out) {
		if through {
			t.Errorf("%s: it ran", what)
		}
	}
	if r.name == oneShot { // they are ways where nothing is listed
		w = s.fixture(t, mount(t, dir, "/data", sandbox.ReadWrite))
		for what, through := range evaded(t, w.run(t, r, "sh", "/data/all").ok(t).out) {
			if !through && !slices.Contains(mayFail, what) {
				t.Errorf("%s: it does not run where everything may", what)
			}
		}
	}
	// The first process is the sandbox's own.
	for _, words := range [][]string{nil, {"-memory"}} {
		w = s.fixture(t, list, mount(t, dir, "/data", sandbox.ReadWrite))
		o = w.run(t, r, append([]string{"python3", "-I", "-S", "/data/memory.py"}, words...)...)
		if strings.Contains(o.out, canary) {
			t.Errorf("the first process executes out of memory: %q", o.out)
		}
	}
	// One that can be read is not executed either.
	w = s.fixture(t, func(spec *sandbox.Spec) { spec.Executables = &sandbox.Executables{Files: x.Files} })
	if o := w.run(t, r, "sh", "-c", "/usr/bin/id; cp /usr/bin/id /tmp/id; cat /usr/bin/id > /dev/null && echo read"); o.out != "read\n" {
		t.Errorf("where nothing is closed: %q, %q", o.out, o.errs)
	}
	// One that lies in a mount is executed there, if it is listed.
	x.Files = append(x.Files, "/data/listed")
	for _, access := range []sandbox.Access{sandbox.ReadOnly, sandbox.ReadWrite} {
		w = s.fixture(t, list, mount(t, dir, "/data", access))
		if o := w.run(t, r, "sh", "-c", "/data/listed a b; /data/script"); o.out != "listed a b\n" {
			t.Errorf("in a mount: %q, %q", o.out, o.errs)
		}
	}
}

// testImageExecutables: an image's programs are told apart like the host's.
func testImageExecutables(t *testing.T, s *suite, r road) {
	loader := "/usr" + loaderOf(t, "/bin/cat") // where imagetest.Programs has it
	list := func(spec *sandbox.Spec) {
		spec.Executables = &sandbox.Executables{Files: []string{"/usr/bin/sh", "/usr/bin/cat", loader}, Loaders: []string{loader}, Closed: []string{"/usr/bin"}}
	}
	if !s.caps.Executables {
		s.lacks(t, "does not look at what is executed")
	}
	o := s.imageFixture(t, list).run(t, r, "sh", "-c", `echo works | cat; id; /bin/id; cat /bin/id > /tmp/id; chmod 755 /tmp/id; /tmp/id; `+loader+` /bin/id; exec 9< /bin/id; /proc/self/fd/9`)
	if o.out != "works\n" {
		t.Errorf("%q, %q", o.out, o.errs)
	}
}

// testExecutablesKept: the list holds for a sandbox that goes on, and may be another
// one by then.
func testExecutablesKept(t *testing.T, s *suite, _ road) {
	if !s.caps.Executables {
		s.lacks(t, "does not look at what is executed")
	}
	if !s.caps.Snapshot {
		s.lacks(t, "no snapshots")
	}
	ctx := timeout(t)
	x := listed(t)
	w := s.fixture(t, snapshots, func(spec *sandbox.Spec) { spec.Executables = x })
	inst, c := s.live(t, ctx, w)
	defer inst.Destroy(context.WithoutCancel(ctx))
	defer c.Close()
	const line = `exec 2>&1; cat /usr/bin/id > /tmp/id; chmod 755 /tmp/id; id; /usr/bin/id; /tmp/id; $L /usr/bin/id; python3 -I -S -c 'print(1)'`
	if got := says(t, ctx, w, c, line); strings.Contains(got, "uid=") || !strings.HasSuffix(got, "\n1") {
		t.Errorf("before: %q", got)
	}
	last := s.empty(t, "last")
	if err := inst.(sandbox.Snapshotter).Snapshot(ctx, last, true); err != nil {
		t.Fatal(err)
	}
	python, _ := real(t, "/usr/bin/python3")
	less := *x
	less.Files = slices.DeleteFunc(slices.Clone(x.Files), func(name string) bool { return name == python })
	for list, want := range map[*sandbox.Executables]bool{x: true, &less: false} {
		w := s.fixture(t, snapshots, func(spec *sandbox.Spec) { spec.Executables = list })
		inst, err := s.driver.(sandbox.Restorer).Restore(ctx, w.spec, last)
		if err != nil {
			t.Fatal(err)
		}
		c := s.speak(t, ctx, inst, w)
		if got := says(t, ctx, w, c, line); strings.Contains(got, "uid=") || strings.HasSuffix(got, "\n1") != want {
			t.Errorf("after: %q, and python3 is listed: %v", got, want)
		}
		c.Close()
		inst.Destroy(context.WithoutCancel(ctx))
	}
	// One that was made without a list has scratch that programs can be started from.
	w = s.fixture(t, snapshots)
	if inst, err := s.driver.(sandbox.Restorer).Restore(ctx, w.spec, last); err == nil {
		inst.Destroy(context.WithoutCancel(ctx))
		t.Error("a sandbox with a list goes on without one")
	}
}

// listed are programs that evasions may use.
func listed(t *testing.T) *sandbox.Executables {
	t.Helper()
	x := &sandbox.Executables{Closed: []string{"/usr/bin", "/usr/sbin"}}
	for _, name := range []string{"/bin/sh", "/bin/cat", "/bin/cp", "/bin/ln", "/bin/chmod", "/usr/bin/python3"} {
		program, loader := real(t, name)
		x.Files = append(x.Files, program, loader)
		x.Loaders = append(x.Loaders, loader)
	}
	for _, list := range []*[]string{&x.Files, &x.Loaders} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return x
}

// evade makes a directory for /data, with the script all, which tries everything.
func (s *suite) evade(t *testing.T) (dir string) {
	t.Helper()
	dir = s.path(t)
	write(t, dir+"/script", "#!/bin/sh\necho "+canary+"\n", 0o755)
	write(t, dir+"/interpreted", "#!/usr/bin/printf "+canary+"\n", 0o755)
	write(t, dir+"/listed", "#!/bin/sh\necho listed \"$@\"\n", 0o755)
	write(t, dir+"/memory.py", "import os\nfd = os.memfd_create('x', 0)\nos.write(fd, open('/bin/cat', 'rb').read())\n"+
		"os.dup2(os.open('/data/script', os.O_RDONLY), 0)\nos.execve(fd, ['cat'], {})\n", 0o644)
	_, loader := real(t, "/bin/cat")
	var all strings.Builder
	fmt.Fprintf(&all, "export L=%s M=%s C=%s\n", loader, libm(t), canary)
	for i, e := range evasions() {
		name := fmt.Sprintf("e%d", i)
		write(t, dir+"/"+name, e.lines+"\n", 0o644)
		fmt.Fprintf(&all, "echo '== %d'; sh /data/%s 2> /dev/null\n", i, name)
	}
	write(t, dir+"/all", all.String()+"echo '== end'\n", 0o644)
	return dir
}

// evaded says of each evasion whether it got through, from what the script all has
// printed.
func evaded(t *testing.T, out string) map[string]bool {
	t.Helper()
	parts, got := strings.Split(out, "== ")[1:], map[string]bool{}
	if len(parts) != len(evasions())+1 || parts[len(parts)-1] != "end\n" {
		t.Fatalf("not all ways were tried: %q", out)
	}
	for i, e := range evasions() {
		got[e.what] = strings.Contains(parts[i], canary) || strings.Contains(parts[i], "uid=")
	}
	return got
}
