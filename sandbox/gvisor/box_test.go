// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor

import (
	"bufio"
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

// An owner that is killed before it has given an order leaves nothing behind.
func TestOwnerIsKilledBeforeTheOrder(t *testing.T) {
	const id = "sbx_NOORDERANDNOOWNER012345678"
	if dir := os.Getenv("CAISSON_TEST_NO_ORDER"); dir != "" {
		b := &box{spec: &sandbox.Spec{ID: id, StateDir: dir, Limits: sandbox.DefaultLimits()}}
		err := b.makeGroup(cgroup.Detect())
		if err == nil {
			b.shim, err = startShim(dir, b.group)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("shim", b.shim.pid())
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOwnerIsKilledBeforeTheOrder$")
	cmd.Env = append(os.Environ(), "CAISSON_TEST_NO_ORDER="+dir)
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
