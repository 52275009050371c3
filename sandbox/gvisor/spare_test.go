// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/engine"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/gvisor"
	"github.com/caisson-run/caisson/sandbox/gvisor/newborn"
	"github.com/caisson-run/caisson/sandbox/gvisor/wire"
)

func TestPostureOfSpareAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestPostureOfSpare") }

// A shim that waited for its sandbox is like any other.
func TestPostureOfSpare(t *testing.T) {
	noSpares(t)
	program, err := engine.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	spec := world(t)
	newborn.Keep(program, filepath.Dir(spec.StateDir), time.Hour)
	spare := spares(t, 1)
	holdPostureOf(t, spec)
	if slices.Equal(spare, shims(t)) {
		t.Error("it was left")
	}
}

func TestSpareAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestSpare") }

// Who asks twice has a shim ready, which serves one sandbox.
func TestSpare(t *testing.T) {
	noSpares(t)
	d := gvisor.New(gvisor.Options{})
	succeeds(t, d)
	spares(t, 0) // it might have been a command
	succeeds(t, d)
	spare := spares(t, 1)
	if used := succeeds(t, d); !slices.Equal(used, spare) {
		t.Errorf("%v served, and %v was ready", used, spare)
	}
	if next := spares(t, 1); slices.Equal(next, spare) {
		t.Error("it waits once more")
	}
}

// Many sandboxes at once leave one.
func TestSpares(t *testing.T) {
	noSpares(t)
	d := gvisor.New(gvisor.Options{})
	defer spares(t, 0)
	defer d.Rest()
	var all sync.WaitGroup
	for range 3 {
		spec := neighbour(t)
		all.Go(func() {
			if err := run(t, d, spec, func() {}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	spares(t, 1)
}

func TestSpareThatWasKilled(t *testing.T) {
	noSpares(t)
	d := gvisor.New(gvisor.Options{})
	succeeds(t, d)
	succeeds(t, d)
	spare := spares(t, 1)[0]
	if err := unix.Kill(spare, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Dead, and nobody's concern yet.
	if err := unix.Waitid(unix.P_PID, spare, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if used := succeeds(t, d); slices.Contains(used, spare) {
		t.Error("it is dead")
	}
}

// What the host unmounts while a shim waits is unmounted for it, too, where the host's
// mounts are shared: its device is free then.
func TestSpareKeepsNoMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's shim has no mounts of its own")
	}
	noSpares(t)
	shared := t.TempDir()
	volume := filepath.Join(shared, "volume")
	mount(t, shared)
	if err := errors.Join(unix.Mount("", shared, "", unix.MS_SHARED, ""), os.Mkdir(volume, 0o700)); err != nil {
		t.Fatal(err)
	}
	mount(t, volume)
	program, err := engine.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	spec := world(t)
	newborn.Keep(program, filepath.Dir(spec.StateDir), time.Hour)
	mounts := fmt.Sprintf("/proc/%d/mounts", spares(t, 1)[0])
	for late := time.After(2 * time.Minute); !strings.Contains(seen(t, mounts), "caisson /run tmpfs "); { // it has its stage, and so all that it does with mounts
		select {
		case <-late:
			t.Fatal("it has not got ready")
		case <-time.After(time.Millisecond):
		}
	}
	if !strings.Contains(seen(t, mounts), volume) {
		t.Error("what it had when it was started is not seen")
	}
	if err := unix.Unmount(volume, 0); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(seen(t, mounts), volume) {
		t.Error("it keeps the volume")
	}
	during := ""
	if err := run(t, gvisor.New(gvisor.Options{}), spec, func() { during = seen(t, strings.Replace(mounts, "mounts", "mountinfo", 1)) }); err != nil {
		t.Error(err)
	}
	if !strings.Contains(during, shared) || strings.Contains(during, "master:") {
		t.Errorf("a sandbox's mounts hang on the host's:\n%s", during)
	}
}

func mount(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("test", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func seen(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// noSpares begins and ends without one.
func noSpares(t *testing.T) {
	t.Helper()
	if unified(t) && os.Geteuid() == 0 {
		t.Skip("on cgroup v2 a shim is started in its group")
	}
	newborn.Discard()
	t.Cleanup(newborn.Discard)
}

// spares are the shims that wait, which must be n.
func spares(t *testing.T, n int) []int {
	t.Helper()
	newborn.Await()
	found := shims(t)
	for limit := time.Now().Add(2 * time.Minute); len(found) < n && time.Now().Before(limit); found = shims(t) {
		<-time.After(time.Millisecond) // one that is being executed has no name yet
	}
	if len(found) != n {
		t.Fatalf("%d shims wait, not %d", len(found), n)
	}
	return found
}

func shims(t *testing.T) []int { return descendants(t, os.Getpid(), "caisson-shim") }

// succeeds has d run a program, and says which shims there were meanwhile.
func succeeds(t *testing.T, d *gvisor.Driver) (during []int) {
	t.Helper()
	if err := run(t, d, neighbour(t), func() { during = shims(t) }); err != nil {
		t.Fatal(err)
	}
	return during
}

// neighbour is a world whose directory lies beside those of the others of this test, as
// sandboxes' do.
func neighbour(t *testing.T) *sandbox.Spec {
	t.Helper()
	spec := world(t)
	spec.StateDir = t.TempDir()
	if err := os.Chmod(spec.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	return spec
}

func run(t *testing.T, d *gvisor.Driver, spec *sandbox.Spec, running func()) error {
	in, release := io.Pipe()
	up := &waiter{text: "up", seen: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		_, err := d.Run(t.Context(), spec, &sandbox.Exec{Argv: []string{"sh", "-c", "echo up; read x"}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdin: in, Stdout: up})
		ended <- err
	}()
	select {
	case <-up.seen:
	case err := <-ended:
		return errors.Join(errors.New("it ended early"), err)
	}
	running()
	release.Close()
	return <-ended
}

func TestShimOfDeadOwnerAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestShimOfDeadOwner") }

// A shim that can make nothing of its order, whose owner does not hear that any more,
// takes away what the owner would have.
func TestShimOfDeadOwner(t *testing.T) {
	program, err := engine.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := newborn.Start(program)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.FileConn(s.Socket)
	s.Socket.Close()
	if err != nil {
		t.Fatal(err)
	}
	conn, null := c.(*net.UnixConn), openNull(t)
	err = errors.Join(
		wire.Send(conn, &wire.Birth{StateDir: dir}, nil),
		wire.Send(conn, &wire.Order{StateDir: dir, Spec: []byte("none")}, []*os.File{null, null, null, null}),
		conn.Close(), // long before it is able to read
	)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := s.Process.Wait(); err != nil || state.ExitCode() != 1 {
		t.Errorf("%v %v, want exit status 1", state, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
}

func openNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
