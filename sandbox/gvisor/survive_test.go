// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// A claim of another user is not heard, even where the files are open to all.
func TestClaimOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone becomes another user")
	}
	spec := fixture(t)
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
	socket := filepath.Join(spec.StateDir, protocol.ClaimName)
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	for uid, heard := range map[int]bool{65534: false, 0: true} {
		conn, err := dialAs(uid, socket)
		if err != nil {
			t.Fatalf("uid %d cannot connect: %v", uid, err)
		}
		_ = protocol.Send(conn, &protocol.Claim{ID: "sbx_ANOTHER"}, nil) // one that is not heard is closed meanwhile
		var l protocol.Legacy
		files, err := protocol.Receive(conn, &l)
		if (err == nil) != heard || len(files) > 0 {
			t.Errorf("uid %d got %+v, %d files, %v", uid, l, len(files), err)
		}
		conn.Close()
	}
}

// dialAs connects as another user, on a thread that becomes it and ends.
func dialAs(uid int, socket string) (conn *net.UnixConn, err error) {
	err = threads.Ending(func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			return errno
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "claim")
		defer f.Close()
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
			return err
		}
		c, err := net.FileConn(f)
		if err == nil {
			conn = c.(*net.UnixConn)
		}
		return err
	})
	return conn, err
}

// A caisson of another version gets nothing of a sandbox, which ends: no other owner
// will come for it.
func TestClaimOfAnotherVersion(t *testing.T) {
	spec := fixture(t)
	spec.Outlives = true
	inst, err := gvisor.New(gvisor.Options{}).Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	box := inst.(sandbox.Survivor)
	if err := errors.Join(box.Outlive(time.Hour, time.Time{}), box.Leave()); err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: filepath.Join(spec.StateDir, protocol.ClaimName)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := protocol.Send(conn, &protocol.Claim{Version: protocol.Version + 1, ID: spec.ID}, nil); err != nil {
		t.Fatal(err)
	}
	var l protocol.Legacy
	files, err := protocol.Receive(conn, &l)
	if err != nil || len(files) > 0 || l.Refused != protocol.Foreign || l.Version != protocol.Version {
		t.Fatalf("%+v, %d files, %v", l, len(files), err)
	}
	p, err := unix.PidfdOpen(l.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p), Events: unix.POLLIN}}, 60_000)
		if err == nil && n == 0 {
			t.Fatal("it runs on")
		}
		if err == nil {
			return
		}
	}
}

// A shim from before there were versions gives its sandbox away, to a caisson that
// cannot speak with it: that one ends it and says why.
func TestAdoptOfAnotherVersion(t *testing.T) {
	for _, old := range []protocol.Legacy{{}, {Version: protocol.Version + 1, Refused: protocol.Foreign}} {
		spec := &sandbox.Spec{ID: "sbx_" + rand.Text(), StateDir: filepath.Join(t.TempDir(), "run")}
		if err := os.Mkdir(spec.StateDir, 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(spec.StateDir, protocol.ClaimName)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		shim := exec.Command("cat") // ends when it is told to
		end, err := shim.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := shim.Start(); err != nil {
			t.Fatal(err)
		}
		said := make(chan string, 1)
		go func() {
			defer shim.Wait()
			defer end.Close()
			conn, err := l.AcceptUnix()
			if err != nil {
				said <- err.Error()
				return
			}
			defer conn.Close()
			var c protocol.Claim
			_, err = protocol.Receive(conn, &c)
			old.PID = shim.Process.Pid
			err = errors.Join(err, protocol.Send(conn, &old, nil))
			b, rerr := io.ReadAll(conn)
			if err = errors.Join(err, rerr); err != nil {
				b = []byte(err.Error())
			}
			said <- string(b)
		}()
		a, err := gvisor.New(gvisor.Options{}).Adopt(t.Context(), spec)
		if a != nil || !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "another version of caisson") {
			t.Errorf("%+v: %v, %v", old, a, err)
		}
		want := ""
		if old.Refused == "" {
			want = `{"kind":"outlive"}` + "\n" // without a grace
		}
		if got := <-said; got != want {
			t.Errorf("it was told %q, want %q", got, want)
		}
	}
}
