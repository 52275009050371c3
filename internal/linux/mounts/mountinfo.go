// SPDX-License-Identifier: Apache-2.0

// Package mounts finds mountpoints, tells a directory from all others that there are and
// were on a host ([DirectoryMark]), and reads what was written to an overlay ([WriteUpper],
// [WriteRoot]).
// It reads lists of mounts as the kernel writes them (proc_pid_mountinfo(5)). A user who may
// mount in a user namespace chooses a part of what stands there.
package mounts

import (
	"slices"
	"strconv"
	"strings"
)

// Mount is one line.
type Mount struct {
	Device string // of the file system: "259:2"
	Root   string // what of the file system is mounted
	Point  string // where
	Type   string // of the file system: "ext4"
	Super  string // the file system's own options, as the kernel writes them: "rw,cpu,cpuacct"
}

// Parse reads one line, with or without its end. ok is false where it is none of the
// kernel's.
func Parse(line string) (m Mount, ok bool) {
	// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
	fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
	if len(fields) < 6 {
		return Mount{}, false
	}
	tags := slices.Index(fields[6:], "-") // how many there are is not known beforehand
	if tags < 0 || len(fields) < 6+tags+4 {
		return Mount{}, false
	}
	system := fields[6+tags+1:]
	return Mount{Device: fields[2], Root: unescape(fields[3]), Point: unescape(fields[4]), Type: unescape(system[0]), Super: system[2]}, true
}

// unescape undoes the octal escapes of space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
