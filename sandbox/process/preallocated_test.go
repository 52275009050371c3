// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// A file with a limit takes no more of the disk than that: RLIMIT_FSIZE says nothing of what
// lies beyond a file's end (fallocate(2), FALLOC_FL_KEEP_SIZE).
func TestPreallocated(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	source, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	spec := fixture(t)
	spec.Limits.FileSize = 1 << 20
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: source, Name: dir, Target: "/home/user", Access: sandbox.ReadWrite, Dir: true})
	spec.Scratch = nil
	var out bytes.Buffer
	res, err := process.New(process.Options{}).Run(t.Context(), spec, &sandbox.Exec{
		Argv: []string{"sh", "-c", "fallocate -l 512K f && fallocate -n -l 64M f"}, Dir: "/home/user", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &out,
	})
	if err != nil || res.ExitCode == nil || *res.ExitCode == 0 {
		t.Errorf("%+v, %v\n%s", res, err, &out)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "f"), &st); err != nil || st.Blocks*512 > spec.Limits.FileSize || st.Blocks == 0 {
		t.Errorf("the file takes %d bytes of the disk, %v\n%s", st.Blocks*512, err, &out)
	}
}
