// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"os"

	"golang.org/x/sys/unix"
)

// UseDisk makes a disk of the directory for temporary files, where it is memory and
// /var/tmp is none: Debian 13 mounts a tmpfs on /tmp. What a sandbox writes to its
// scratch is charged to it there, as memory, and before Linux 6.3 nothing there can
// be shown under another owner. It is for the TestMain of tests that start sandboxes.
func UseDisk() {
	if dir := diskFor(os.TempDir()); dir != os.TempDir() {
		os.Setenv("TMPDIR", dir)
	}
}

// diskFor is dir, or /var/tmp where dir alone is memory.
func diskFor(dir string) string {
	if inMemory(dir) && !inMemory("/var/tmp") {
		return "/var/tmp"
	}
	return dir
}

func inMemory(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) != nil || fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
}
