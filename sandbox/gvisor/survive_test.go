// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
	"github.com/caisson-run/caisson/sandbox/gvisor/wire"
)

// A claim of another user is not heard, even where the files are open to all.
func TestClaimOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	spec := world(t)
	spec.Outlives = true
	d := gvisor.New(gvisor.Options{})
	inst, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	box := inst.(sandbox.Survivor)
	if err := errors.Join(box.Outlive(time.Minute, time.Time{}), box.Leave()); err != nil {
		t.Fatal(err)
	}
	defer func() { // it still is its user's
		if err := os.Chmod(spec.StateDir, 0o700); err != nil {
			t.Error(err)
		}
		a, err := d.Adopt(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	// Not by its path, in which directories are closed to others.
	for dir := spec.StateDir; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(spec.StateDir, wire.ClaimName)
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	for uid, heard := range map[int]bool{65534: false, 0: true} {
		conn, err := dialAs(uid, socket)
		if err != nil {
			t.Fatalf("uid %d cannot connect: %v", uid, err)
		}
		_ = wire.Send(conn, &wire.Claim{ID: "sbx_ANOTHER"}, nil) // one that is not heard is closed meanwhile
		var l wire.Legacy
		files, err := wire.Receive(conn, &l)
		if (err == nil) != heard || len(files) > 0 {
			t.Errorf("uid %d got %+v, %d files, %v", uid, l, len(files), err)
		}
		conn.Close()
	}
}

// dialAs connects as another user, on a thread that becomes it and ends.
func dialAs(uid int, socket string) (conn *net.UnixConn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			err = errno
			return
		}
		fd, serr := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err = serr; err != nil {
			return
		}
		f := os.NewFile(uintptr(fd), "claim")
		defer f.Close()
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
			return
		}
		var c net.Conn
		if c, err = net.FileConn(f); err == nil {
			conn = c.(*net.UnixConn)
		}
	}()
	<-done
	return conn, err
}
