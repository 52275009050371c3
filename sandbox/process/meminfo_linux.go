// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryFile lies over /proc/meminfo. Its name is gone when the root is made.
const memoryFile = "/dev/.meminfo"

// buildMemory writes down how the machine's memory comes to be the sandbox's limit, by
// which programs size themselves: what is free is all of it, as when they start.
func (w *rootfs) buildMemory(s *script) {
	if w.spec.Limits.Memory <= 0 {
		return
	}
	s.doing("make what shows as /proc/meminfo")
	s.file(memoryFile, meminfo(w.spec.Limits.Memory))
}

// file makes one that can be read.
func (s *script) file(name, text string) {
	f := s.slot()
	s.call(unix.SYS_OPENAT, unix.AT_FDCWD, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o444).save(f)
	s.call(unix.SYS_FCHMOD, f, 0o444) // whatever the umask is
	s.call(unix.SYS_WRITE, f, text, len(text))
	s.close(f)
}

// showMemory lays it over the kernel's, and takes its name away.
func (w *rootfs) showMemory(s *script) {
	if w.spec.Limits.Memory > 0 {
		s.call(unix.SYS_MOUNT, memoryFile, "/proc/meminfo", nil, unix.MS_BIND, nil)
	}
}

// meminfo is proc_meminfo(5) of a machine that has n bytes, no swap, and nothing in use.
func meminfo(n int64) string {
	var b strings.Builder
	for _, name := range []string{
		"MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "SwapCached", "Active", "Inactive", "Active(anon)", "Inactive(anon)",
		"Active(file)", "Inactive(file)", "Unevictable", "Mlocked", "SwapTotal", "SwapFree", "Dirty", "Writeback", "AnonPages", "Mapped",
		"Shmem", "KReclaimable", "Slab", "SReclaimable", "SUnreclaim",
	} {
		kib := int64(0)
		if strings.HasPrefix(name, "Mem") {
			kib = n >> 10
		}
		fmt.Fprintf(&b, "%-15s %8d kB\n", name+":", kib)
	}
	return b.String()
}
