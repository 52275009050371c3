// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
)

// What of /proc tells about the machine or reaches into it is hidden, the
// kernel's settings cannot be changed. The permissions on nearly all of it say
// the same to whoever is not root in the first user namespace; this holds when
// they do not. What a kernel does not have is left out.

// procReadOnly are shown and cannot be written.
var procReadOnly = sync.OnceValue(func() (present []string) {
	for _, p := range []string{"/proc/sys", "/proc/fs", "/proc/irq", "/proc/bus"} {
		if _, err := os.Lstat(p); err == nil {
			present = append(present, p)
		}
	}
	return present
})

// procHidden show as empty.
var procHidden = sync.OnceValue(func() (present []sandbox.Mask) {
	for _, p := range []string{
		"/proc/acpi", "/proc/asound", "/proc/driver", "/proc/dynamic_debug", "/proc/pressure", "/proc/scsi",
		"/proc/cmdline", "/proc/config.gz", "/proc/diskstats", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/kallsyms",
		"/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg", "/proc/latency_stats", "/proc/modules", "/proc/partitions",
		"/proc/sched_debug", "/proc/softirqs", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/timer_stats",
	} {
		// What only root in the first user namespace may open, nobody inside may,
		// whatever rights it gets hold of: the owner has no number there.
		if info, err := os.Lstat(p); err == nil && info.Mode().Perm()&0o007 != 0 {
			present = append(present, sandbox.Mask{Target: p, Dir: info.IsDir()})
		}
	}
	return present
})
