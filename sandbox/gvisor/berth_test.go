// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// begun makes a berth early and waits until it is there.
func begun(t *testing.T, d *Driver, id string, l sandbox.Limits) (dir string, b *berth, release func()) {
	t.Helper()
	dir = t.TempDir()
	release = d.Early(id, dir, l)
	e := d.early[id]
	<-e.done
	if e.err != nil {
		t.Fatal(e.err)
	}
	return dir, e.berth, release
}

// gone holds that nothing is left of a berth.
func gone(t *testing.T, d *Driver, id string, pid int) {
	t.Helper()
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the shim is still there: %v", err)
	}
	noGroup(t, d.host(), id)
}

func noGroup(t *testing.T, host *cgroup.Host, id string) {
	t.Helper()
	if host.Why != "" {
		return // there are none here
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.Contains(e.Name(), id) {
			t.Errorf("the control group is still there: %s", path)
		}
		return nil
	})
}

func TestEarlyIsWhatIsAskedForLater(t *testing.T) {
	d, l := New(Options{}), sandbox.DefaultLimits()
	const id = "sbx_EARLYASKEDFOR0123456789"
	dir, b, release := begun(t, d, id, l)
	pid := b.shim.pid()
	got, err := d.berth(id, dir, &l)
	if err != nil || got != b {
		t.Fatalf("asked for with the same limits it is another one (%v)", err)
	}
	release() // of what was taken is nobody's business any more
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("release has ended what was taken: %v", err)
	}
	got.close()
	gone(t, d, id, pid)
}

func TestEarlyIsTakenBack(t *testing.T) {
	d := New(Options{})
	const id = "sbx_EARLYTAKENBACK0123456789"
	_, b, release := begun(t, d, id, sandbox.DefaultLimits())
	pid := b.shim.pid()
	release()
	gone(t, d, id, pid)
	release()
}

// What was begun with other limits than the ones that hold must not be used.
func TestEarlyWithOtherLimits(t *testing.T) {
	d, l := New(Options{}), sandbox.DefaultLimits()
	const id = "sbx_EARLYOTHERLIMITS0123456789"
	other := l
	other.Memory *= 2
	dir, b, release := begun(t, d, id, other)
	defer release()
	first := b.shim.pid()
	got, err := d.berth(id, dir, &l)
	if err != nil {
		t.Fatal(err)
	}
	if got == b {
		t.Error("it was used all the same")
	}
	if err := unix.Kill(first, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the first shim is still there: %v", err)
	}
	pid := got.shim.pid()
	if got.group != nil {
		if have, want := memoryLimit(t, got.group), l.Memory+kernelShare(l.Memory); have != want {
			t.Errorf("the group's limit is %d, want %d", have, want)
		}
	}
	got.close()
	gone(t, d, id, pid)
}

func memoryLimit(t *testing.T, g *cgroup.Group) int64 {
	t.Helper()
	for _, dir := range g.Dirs() {
		for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the group has no limit")
	return 0
}

// An owner that is killed before it has given an order leaves nothing behind.
func TestEarlyOwnerIsKilled(t *testing.T) {
	const id = "sbx_EARLYOWNERKILLED0123456789"
	if dir := os.Getenv("CAISSON_TEST_EARLY"); dir != "" {
		d := New(Options{})
		d.Early(id, dir, sandbox.DefaultLimits())
		e := d.early[id]
		<-e.done
		if e.err != nil {
			t.Fatal(e.err)
		}
		fmt.Println("shim", e.berth.shim.pid())
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestEarlyOwnerIsKilled$")
	cmd.Env = append(os.Environ(), "CAISSON_TEST_EARLY="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, perr := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "shim ")))
	if err != nil || perr != nil {
		_ = cmd.Process.Kill()
		t.Fatalf("%q, %v, %v", line, err, cmd.Wait())
	}
	shim, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(shim)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(shim), Events: unix.POLLIN}}, 30_000); n != 1 {
		t.Fatalf("the shim has not ended: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the state directory is still there: %v", err)
	}
	noGroup(t, cgroup.Detect(), id)
}
