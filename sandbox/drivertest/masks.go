// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

var maskTests = []test{
	{name: "hide files and directories", run: testMasksHide},
	{name: "a part mounted again is kept", run: testProtect},
	{name: "sockets and pipes of the host", run: testPeers},
}

// maskTree has what a workspace has.
func maskTree(t *testing.T, s *suite) string {
	dir := s.path(t) + "/ws"
	write(t, dir+"/.env", canary, 0o666)
	write(t, dir+"/keys/id", canary, 0o666)
	write(t, dir+"/.git/config", "[core]\n", 0o666)
	write(t, dir+"/main.py", "print(1)\n", 0o666)
	return dir
}

func masks(list ...sandbox.Mask) func(*sandbox.Spec) {
	return func(spec *sandbox.Spec) { spec.Masks = append(spec.Masks, list...) }
}

func testMasksHide(t *testing.T, s *suite, r road) {
	if !s.caps.Masks {
		s.lacks(t, "no masks")
	}
	for _, access := range []sandbox.Access{sandbox.ReadOnly, sandbox.CopyOnWrite, sandbox.ReadWrite} {
		if access == sandbox.CopyOnWrite && !s.caps.CopyOnWrite || access == sandbox.ReadWrite && !s.caps.ReadWrite {
			continue
		}
		dir := maskTree(t, s)
		w := s.fixture(t, mount(t, dir, "/data", access), masks(sandbox.Mask{Target: "/data/.env"}, sandbox.Mask{Target: "/data/keys", Dir: true}))
		o := w.run(t, r, "sh", "-c", `cd /data; cat main.py; cat .env keys/id keys/*; mv .env seen && cat seen; mv keys seen2 && cat seen2/id
rm -rf .env keys; cat .env keys/id; ln .env hard && cat hard; umount .env keys; cat .env keys/id; echo x > .env; true`)
		if !strings.Contains(o.out, "print(1)") {
			t.Errorf("%v: the rest of the mount does not show: %s", access, o.errs)
		}
		if strings.Contains(o.out, canary) {
			t.Errorf("%v: a hidden path was read: %q", access, o.out)
		}
		if read(t, dir+"/.env") != canary || read(t, dir+"/keys/id") != canary {
			t.Errorf("%v: a hidden path was changed", access)
		}
	}
}

// testProtect: a part of a read-write mount is kept from changes by mounting it
// once more, read-only.
func testProtect(t *testing.T, s *suite, r road) {
	s.needAccess(t, sandbox.ReadWrite)
	dir := maskTree(t, s)
	w := s.fixture(t, mount(t, dir, "/data", sandbox.ReadWrite),
		mount(t, dir+"/.git", "/data/.git", sandbox.ReadOnly), mount(t, dir+"/.env", "/data/.env", sandbox.ReadOnly))
	o := w.run(t, r, "sh", "-c", `cd /data; cat .git/config; echo evil > .git/config; echo evil > .git/hook; rm -rf .git; mv .git .git2; mv .env .env2
echo evil > .env; rm -f .env; ln -sf /dev/null .env; echo changed > main.py; true`).ok(t)
	if o.out != "[core]\n" {
		t.Errorf("a protected path reads as %q", o.out)
	}
	if got := read(t, dir+"/.git/config"); got != "[core]\n" {
		t.Errorf(".git/config holds %q", got)
	}
	if got := read(t, dir+"/.env"); got != canary {
		t.Errorf(".env holds %q", got)
	}
	if got := read(t, dir+"/main.py"); got != "changed\n" {
		t.Errorf("what is not protected holds %q", got)
	}
	if strings.Contains(listing(t, dir), "evil") || strings.Contains(listing(t, dir), "hook") {
		t.Errorf("the workspace holds\n%s", listing(t, dir))
	}
}

// testPeers: the process at the other end of a socket or pipe in a mounted
// directory is not reached, either because the level makes them inert, or because
// they are hidden, as the road does it.
func testPeers(t *testing.T, s *suite, r road) {
	for _, access := range []sandbox.Access{sandbox.ReadOnly, sandbox.CopyOnWrite, sandbox.ReadWrite} {
		if access == sandbox.CopyOnWrite && !s.caps.CopyOnWrite || access == sandbox.ReadWrite && !s.caps.ReadWrite {
			continue
		}
		dir := s.path(t) + "/ws"
		write(t, dir+"/file", "text\n", 0o666)
		listener, err := net.Listen("unix", dir+"/socket")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		if err := syscall.Mkfifo(dir+"/pipe", 0o666); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"/socket", "/pipe"} {
			if err := os.Chmod(dir+name, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		// Read and write, so that the opener of its other end need not wait.
		pipe, err := os.OpenFile(dir+"/pipe", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer pipe.Close()
		if _, err := pipe.WriteString(canary); err != nil {
			t.Fatal(err)
		}
		hide := masks()
		if !s.caps.InertSockets && access != sandbox.CopyOnWrite {
			hide = masks(sandbox.Mask{Target: "/data/socket"}, sandbox.Mask{Target: "/data/pipe"})
		}
		o := s.fixture(t, mount(t, dir, "/data", access), hide).run(t, r, "python3", "-I", "-S", "-c", `
import os, socket
print(open("/data/file").read(), end="")
try:
    socket.socket(socket.AF_UNIX).connect("/data/socket")
    print("connected")
except OSError: pass
try: print(os.read(os.open("/data/pipe", os.O_RDONLY | os.O_NONBLOCK), 100))
except OSError: pass
`).ok(t)
		if !strings.HasPrefix(o.out, "text\n") || strings.Contains(o.out, "connected") || strings.Contains(o.out, canary) {
			t.Errorf("%v: it says %q", access, o.out)
		}
	}
}
