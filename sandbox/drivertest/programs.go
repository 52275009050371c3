// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"debug/elf"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

var programTests = []test{
	{name: "only listed programs are executed", run: testExecutables},
}

// real is a program of the host's toolchain by its own name, and its loader.
func real(t *testing.T, name string) (program, loader string) {
	t.Helper()
	program, err := filepath.EvalSymlinks(name)
	if err != nil {
		t.Fatal(err)
	}
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
			if loader, err = filepath.EvalSymlinks(strings.TrimRight(string(b), "\x00")); err != nil {
				t.Fatal(err)
			}
		}
	}
	return program, loader
}

// testExecutables: what is listed runs, and nothing else does, by whatever way it
// is reached.
func testExecutables(t *testing.T, s *suite, r road) {
	x := &sandbox.Executables{Closed: []string{"/usr/bin", "/usr/sbin"}}
	for _, name := range []string{"/bin/sh", "/bin/cat", "/bin/cp", "/bin/ln", "/bin/chmod", "/usr/bin/python3"} {
		program, loader := real(t, name)
		x.Files = append(x.Files, program, loader)
	}
	slices.Sort(x.Files)
	x.Files = slices.Compact(x.Files)
	_, loader := real(t, "/bin/cat")
	dir := s.path(t)
	write(t, dir+"/script", "#!/bin/sh\necho "+canary+"\n", 0o755)
	write(t, dir+"/listed", "#!/bin/sh\necho listed\n", 0o755)
	list := func(spec *sandbox.Spec) { spec.Executables = x }
	if !s.caps.Executables {
		w := s.world(t, list)
		if res, err := r.run(timeout(t), w.spec, w.exec("true")); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("the level does not hold a list of programs, and takes one: %+v, %v", res, err)
		}
		s.lacks(t, "does not look at what is executed")
	}
	// What is listed works, libraries, /tmp and /dev/null included.
	w := s.world(t, list, mount(t, dir, "/data", sandbox.ReadWrite))
	o := w.run(t, r, "sh", "-c", `echo one > /tmp/f && cat /tmp/f /data/listed > /dev/null && cat /tmp/f && python3 -I -S -c 'import os; os.write(1, b"two\n"); os.mkdir("/tmp/d"); os.rename("/tmp/f", "/tmp/d/f")' && cat < /tmp/d/f`).ok(t)
	if o.out != "one\ntwo\none\n" {
		t.Errorf("what is listed: %q, %q", o.out, o.errs)
	}
	// Each of these would print what id prints, or the canary.
	for what, line := range map[string]string{
		"another program":            "id",
		"by its path":                "/usr/bin/id; /bin/id",
		"by a script's first line":   "/data/script",
		"by a program of the list":   `python3 -I -S -c 'import os; os.execv("/usr/bin/id", ["id"])'`,
		"by its loader":              loader + " /usr/bin/id",
		"by its loader, copied":      "cp " + loader + " /tmp/l; /tmp/l /usr/bin/id",
		"a copy in /tmp":             "cat /usr/bin/id > /tmp/id; chmod +x /tmp/id; /tmp/id",
		"a listed one, elsewhere":    "cp /bin/cat /tmp/c && chmod +x /tmp/c && echo " + canary + " | /tmp/c",
		"by its loader, from /tmp":   "cp /bin/cat /tmp/c && echo " + canary + " | " + loader + " /tmp/c",
		"by its loader, from a home": "cp /bin/cat $HOME/c && echo " + canary + " | " + loader + " $HOME/c",
		"by its loader, from a rw":   "cp /bin/cat /data/c && echo " + canary + " | " + loader + " /data/c",
		"from /dev/shm":              "cp /bin/cat /dev/shm/c && echo " + canary + " | " + loader + " /dev/shm/c",
		"by a link":                  "ln -s /usr/bin/id /tmp/cat; /tmp/cat",
		"out of memory": `python3 -I -S -c '
import os
fd = os.memfd_create("x", 0)
os.write(fd, open("/bin/cat", "rb").read())
os.dup2(os.open("/data/script", os.O_RDONLY), 0)
os.execve(fd, ["cat"], {})'`,
	} {
		w := s.world(t, list, mount(t, dir, "/data", sandbox.ReadWrite))
		o := w.run(t, r, "sh", "-c", line)
		if strings.Contains(o.out, canary) || strings.Contains(o.out, "uid=") {
			t.Errorf("%s: it ran: %q", what, o.out)
		}
	}
	// One that can be read is not executed either.
	open := &sandbox.Executables{Files: x.Files}
	w = s.world(t, func(spec *sandbox.Spec) { spec.Executables = open })
	if o := w.run(t, r, "sh", "-c", "/usr/bin/id; cp /usr/bin/id /tmp/id; cat /usr/bin/id > /dev/null && echo read"); o.out != "read\n" {
		t.Errorf("where nothing is closed: %q, %q", o.out, o.errs)
	}
	// One that lies in a mount is executed there, if it is listed.
	x.Files = append(x.Files, "/data/listed")
	w = s.world(t, list, mount(t, dir, "/data", sandbox.ReadOnly))
	if o := w.run(t, r, "sh", "-c", "/data/listed; /data/script"); o.out != "listed\n" {
		t.Errorf("in a mount: %q, %q", o.out, o.errs)
	}
}
