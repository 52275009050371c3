// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/process"
)

func TestGivenScratchAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestGivenScratch$") }

// What a program makes in a directory that was given reaches its owner, and is not on
// this host's disks.
func TestGivenScratch(t *testing.T) {
	spec := fixture(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	give, ours := os.NewFile(uintptr(fds[0]), "give"), os.NewFile(uintptr(fds[1]), "owner")
	defer give.Close()
	c, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec.Scratch = append(spec.Scratch, sandbox.Scratch{Target: "/run/given", Size: 64 << 10, Inodes: 8, Give: give})
	var out bytes.Buffer
	res, err := process.New(process.Options{}).Run(t.Context(), spec, &sandbox.Exec{
		Argv: []string{"sh", "-c", "echo word >/run/given/a; cat /dev/zero >/run/given/b"}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &out,
	})
	if err != nil || res.ExitCode == nil || *res.ExitCode != 1 {
		t.Errorf("%+v, %v: %s", res, err, &out)
	}
	dir := receive(t, c)
	if dir < 0 {
		return
	}
	defer unix.Close(dir)
	if got, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/a", dir)); err != nil || string(got) != "word\n" {
		t.Errorf("%q, %v", got, err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC || st.Blocks*uint64(st.Bsize) != 64<<10 {
		t.Errorf("%+v, %v", st, err)
	}
}
