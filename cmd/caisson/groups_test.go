// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// hostGroup is a file of the host's control groups that Go keeps open to learn how many
// processors it may use.
var hostGroup = regexp.MustCompile(`/cpu\.(cfs_(quota|period)_us|max)$`)

// What runs beside a sandbox's code holds nothing of the host's control groups: each of
// gVisor's gofer and sentry is the engine, as the keeper is that is looked at here.
func TestEngineHoldsNoControlGroups(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "owner"), os.NewFile(uintptr(fds[1]), "keeper")
	defer ours.Close()
	defer theirs.Close()
	var said bytes.Buffer
	cmd := exec.Command(build(t, "../caisson-engine"))
	cmd.Args, cmd.Env, cmd.ExtraFiles, cmd.Stderr = []string{protocol.Argv0}, []string{"GOMAXPROCS=1"}, []*os.File{theirs}, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	table := fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid)
	// It has begun when it has put /dev/null where its program was open.
	for late := time.After(time.Minute); ; {
		if to, err := os.Readlink(filepath.Join(table, fmt.Sprint(protocol.LastFile))); err == nil && to == os.DevNull {
			break
		}
		select {
		case <-late:
			t.Fatalf("it does not begin: %s", said.String())
		case <-time.After(time.Millisecond):
		}
	}
	open, err := os.ReadDir(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range open {
		if to, err := os.Readlink(filepath.Join(table, e.Name())); err == nil && hostGroup.MatchString(to) {
			t.Errorf("descriptor %s is %s", e.Name(), to)
		}
	}
}
