// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/internal/linux/tun"
)

// AsUser runs another test of this binary again as an ordinary user: no
// capabilities, no groups, nothing in the environment. Where the tests run as
// an ordinary user already there is nothing to become.
func AsUser(t *testing.T, uid uint32, test string) {
	if os.Geteuid() != 0 {
		t.Skipf("uid %d already: %s has just said it", os.Geteuid(), test)
	}
	args := []string{"-test.run=^" + test + "$", "-test.v=true", "-test.count=1", "-many=" + strconv.Itoa(*many), "-all-roads=" + strconv.FormatBool(*allRoads), "-test.short=" + strconv.FormatBool(testing.Short())}
	if sub := flag.Lookup("test.run").Value.String(); strings.Contains(sub, "/") {
		// The part that was asked for, of that test.
		_, part, _ := strings.Cut(sub, "/")
		args[0] = "-test.run=^" + test + "$/" + part
	}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+time.Until(deadline).Round(time.Second).String())
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + cmp.Or(os.Getenv("CAISSON_TEST_TMP"), diskFor("/tmp")), "HOME=/nonexistent", "V2GUEST=" + os.Getenv("V2GUEST"), "V2_SLOW=" + os.Getenv("V2_SLOW")}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "CAISSON_") { // a level's test may need to know its engine
			cmd.Env = append(cmd.Env, kv)
		}
	}
	record := os.Getenv(recordEnv)
	if record != "" {
		cmd.Env = append(cmd.Env, recordEnv+"=-") // the last one counts
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := withTUN(t.TempDir(), cmd.Run)
	tally := map[string]int{}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSpace(line)
		for _, word := range []string{"PASS", "FAIL", "SKIP"} {
			if strings.HasPrefix(line, "--- "+word+": ") {
				tally[word]++
			}
		}
	}
	summary := fmt.Sprintf("as uid %s: %d passed, %d failed, %d skipped", strconv.Itoa(int(uid)), tally["PASS"], tally["FAIL"], tally["SKIP"])
	floor := 1
	if test == "TestConformance" && !strings.Contains(args[0], "/") {
		floor = 20
	}
	if err != nil || tally["FAIL"] > 0 || tally["PASS"] < floor {
		t.Fatalf("%s: %v\n%s", summary, err, &out)
	}
	if record != "" && record != "-" {
		if err := Record(record, out.Bytes()); err != nil {
			t.Error(err)
		}
	}
	if testing.Verbose() {
		t.Logf("%s\n%s", summary, &out)
	}
}

// withTUN runs f on a thread on which everybody may open /dev/net/tun, as udev
// has it, where only root may: in a mount namespace of its own, with a device
// node in dir.
func withTUN(dir string, f func() error) error {
	info, err := os.Stat(tun.Path)
	if err != nil || info.Mode().Perm()&0o006 == 0o006 {
		return f()
	}
	return threads.Ending(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		node := filepath.Join(dir, "tun")
		return errors.Join(
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("tmpfs", dir, "tmpfs", 0, ""),
			unix.Mknod(node, unix.S_IFCHR, int(unix.Mkdev(10, 200))), unix.Chmod(node, 0o666),
			unix.Mount(node, tun.Path, "", unix.MS_BIND, ""),
			f(),
		)
	})
}
