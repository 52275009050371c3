// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

var nameTests = []test{
	{name: "names of its own", run: testNames, only: living},
	{name: "names of its own over an image", run: testNamesOfImage, only: living},
	{name: "names leave mounts alone", run: testNamesOfMounts, only: living},
	{name: "names follow no link into a mount", run: testNamesByLink, only: living},
	{name: "names of a copy", run: testNamesOfCopy, only: living},
	{name: "names of a copy with a root of its own", run: testNamesOfRoot, only: living},
}

// The names of two sandboxes.
const (
	oneHost, oneID     = "sandbox-aaaaaaaa", "11111111111141118111111111111111"
	otherHost, otherID = "sandbox-bbbbbbbb", "22222222222242228222222222222222"
)

func named(host, id string) func(*sandbox.Spec) {
	return func(s *sandbox.Spec) { s.Hostname, s.MachineID = host, id }
}

// tellNames is what tells a sandbox's names. A root need not have each of the files.
const tellNames = `uname -n; cat /etc/hostname; for f in /etc/machine-id /var/lib/dbus/machine-id; do test -f $f && cat $f; done; grep 127.0 /etc/hosts | tr -s '\t ' '  '`

// checkNames looks for the names that a sandbox is to have, and that it has no other.
func (s *suite) checkNames(t *testing.T, ctx context.Context, w *fixture, c *guest.Client) {
	t.Helper()
	got := says(t, ctx, w, c, tellNames)
	lines := strings.Split(got, "\n")
	host, id := w.spec.Hostname, w.spec.MachineID
	if len(lines) < 3 || lines[0] != host || lines[1] != host {
		t.Fatalf("it is called %q, want %s", got, host)
	}
	if s.programs == nil && lines[2] != id {
		t.Errorf("its machine id is %q, want %s", lines[2], id)
	}
	if s.programs == nil && !strings.Contains(got+"\n", "\n127.0.0.1 localhost\n127.0.1.1 "+host+"\n") {
		t.Errorf("it is not in its /etc/hosts: %q", got)
	}
	if strings.Contains(got, otherHost) && host != otherHost || strings.Contains(got, oneHost) && host != oneHost {
		t.Errorf("another's name shows: %q", got)
	}
	if strings.Contains(got, otherID) && id != otherID || strings.Contains(got, oneID) && id != oneID {
		t.Errorf("another's id shows: %q", got)
	}
	for _, f := range w.spec.NameFiles() {
		if says(t, ctx, w, c, "(echo x >> "+f.Target+") 2>/dev/null && echo wrote") != "" {
			t.Errorf("its user changes %s", f.Target)
		}
	}
}

func testNames(t *testing.T, s *suite, _ road) {
	ctx := timeout(t)
	for _, who := range []func(*sandbox.Spec){named(oneHost, oneID), named(otherHost, otherID)} {
		w := s.fixture(t, who)
		inst, c := s.live(t, ctx, w)
		s.checkNames(t, ctx, w, c)
		c.Close()
		inst.Destroy(context.WithoutCancel(ctx))
	}
}

// An image's own names give way, and what it has not is not made.
func testNamesOfImage(t *testing.T, s *suite, _ road) {
	ctx := timeout(t)
	w := s.imageFixture(t, named(oneHost, oneID))
	inst, c := s.live(t, ctx, w)
	defer inst.Destroy(context.WithoutCancel(ctx))
	defer c.Close()
	got := says(t, ctx, w, c, "cat /proc/sys/kernel/hostname /etc/hostname /etc/machine-id; grep -c "+oneHost+" /etc/hosts; ls /var/lib/dbus/machine-id 2>/dev/null")
	want := oneHost + "\n" + oneHost + "\n" + oneID + "\n1"
	if s.programs != nil && !s.caps.EROFS { // no file of the host is shown there
		want = strings.Replace(want, oneID, imageID, 1)
	}
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What is mounted is not the root's: its files are the host's own.
func testNamesOfMounts(t *testing.T, s *suite, _ road) {
	ctx := timeout(t)
	etc := filepath.Join(s.path(t), "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hostname", "hosts", "machine-id", "resolv.conf", "passwd", "group"} {
		write(t, filepath.Join(etc, name), "mine "+name+"\n", 0o644)
	}
	look := func(m func(*sandbox.Spec), line, want string) {
		t.Helper()
		w := s.fixture(t, named(oneHost, oneID), m)
		inst, c := s.live(t, ctx, w)
		defer inst.Destroy(context.WithoutCancel(ctx))
		defer c.Close()
		if got := says(t, ctx, w, c, line); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	look(mount(t, filepath.Join(etc, "machine-id"), "/etc/machine-id", sandbox.ReadOnly), "uname -n; cat /etc/machine-id", oneHost+"\nmine machine-id")
	if !strings.HasPrefix(s.driver.Name(), "docker") { // engines show their own files in any /etc
		look(mount(t, etc, "/etc", sandbox.ReadOnly), "cat /etc/hostname /etc/hosts /etc/machine-id", "mine hostname\nmine hosts\nmine machine-id")
	}
}

func testNamesByLink(t *testing.T, s *suite, _ road) {
	if !s.caps.ReadWrite {
		s.lacks(t, "no "+sandbox.ReadWrite.String()+" mounts")
	}
	ctx := timeout(t)
	dir := s.path(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "dbus"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "dbus", "machine-id")
	write(t, file, "the host's\n", 0o666)
	w := s.imageFixture(t, named(oneHost, oneID), mount(t, dir, "/workspace", sandbox.ReadWrite)) // its /var/lib leads there
	inst, c := s.live(t, ctx, w)
	defer inst.Destroy(context.WithoutCancel(ctx))
	defer c.Close()
	inside := says(t, ctx, w, c, "cat /var/lib/dbus/machine-id")
	if outside, err := os.ReadFile(file); err != nil || inside != "the host's" || string(outside) != "the host's\n" {
		t.Errorf("%q inside, %q outside, %v", inside, outside, err)
	}
}

// copied writes a sandbox called one down.
func (s *suite) copied(t *testing.T, ctx context.Context) string {
	t.Helper()
	w := s.fixture(t, snapshots, named(oneHost, oneID))
	inst, c := s.live(t, ctx, w)
	defer inst.Destroy(context.WithoutCancel(ctx))
	defer c.Close()
	snap, ok := inst.(sandbox.Snapshotter)
	if !s.caps.Snapshot || !ok {
		s.lacks(t, "no snapshot")
	}
	s.checkNames(t, ctx, w, c)
	dir := s.empty(t, "copied")
	if err := snap.Snapshot(ctx, dir, true); err != nil {
		t.Fatal(err)
	}
	return dir
}

// calls are the names in a sandbox whose root may change its files.
const calls = `uname -n; cat /etc/hostname; grep '^127.0.1.1 ' /etc/hosts | cut -d' ' -f2; `

// onwards has a copy go on under a name.
func (s *suite) onwards(t *testing.T, ctx context.Context, dir string, change ...func(*sandbox.Spec)) (*fixture, sandbox.Instance, *guest.Client) {
	t.Helper()
	w := s.fixture(t, append(change, snapshots)...)
	inst, err := s.driver.(sandbox.Restorer).Restore(ctx, w.spec, dir)
	if err != nil {
		t.Fatal(err)
	}
	return w, inst, s.speak(t, ctx, inst, w)
}

// A copy is called what it is to be, and what goes on as itself what it was.
func testNamesOfCopy(t *testing.T, s *suite, _ road) {
	ctx := timeout(t)
	dir := s.copied(t, ctx)
	for _, who := range []func(*sandbox.Spec){named(otherHost, otherID), named(oneHost, oneID)} {
		w, inst, c := s.onwards(t, ctx, dir, who)
		s.checkNames(t, ctx, w, c)
		c.Close()
		inst.Destroy(context.WithoutCancel(ctx))
	}
}

// What the sandbox's root has written stays where it goes on as itself, and its other lines
// do in a copy.
func testNamesOfRoot(t *testing.T, s *suite, _ road) {
	ctx := timeout(t)
	if !s.caps.Root || !s.caps.Snapshot {
		s.lacks(t, "no root of its own, or no snapshot")
	}
	sudo := func(spec *sandbox.Spec) { spec.Sudo = true }
	w := s.fixture(t, snapshots, sudo, named(oneHost, oneID))
	inst, c := s.live(t, ctx, w)
	defer inst.Destroy(context.WithoutCancel(ctx))
	defer c.Close()
	says(t, ctx, w, c, sandbox.ProgramDir+"/sudo sh -c 'echo 10.1.2.3 mine >> /etc/hosts; echo mine > /etc/machine-id'")
	dir := s.empty(t, "copied")
	if err := inst.(sandbox.Snapshotter).Snapshot(ctx, dir, true); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		who func(*sandbox.Spec)
		id  string
	}{{named(oneHost, oneID), "mine"}, {named(otherHost, otherID), otherID}} {
		w, inst, c := s.onwards(t, ctx, dir, sudo, tc.who)
		if s.programs != nil { // the image has none, and what its root has made is its own
			tc.id = "mine"
		}
		got := says(t, ctx, w, c, calls+"grep -c mine /etc/hosts; cat /etc/machine-id")
		if want := strings.Repeat(w.spec.Hostname+"\n", 3) + "1\n" + tc.id; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		c.Close()
		inst.Destroy(context.WithoutCancel(ctx))
	}
}
