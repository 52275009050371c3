// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"sync"

	"github.com/caisson-run/caisson/sandbox"
)

// What of /proc tells about the machine or reaches into it is hidden, the
// kernel's settings cannot be changed. The permissions on nearly all of it say
// the same to a user who is not root in the first user namespace; this holds
// when they do not. What a kernel does not have is left out.

// procReadOnly are shown and cannot be written. They come and go with the kernel.
var procReadOnly = sync.OnceValue(func() (present []string) {
	for _, p := range []string{"/proc/sys", "/proc/fs", "/proc/irq", "/proc/bus"} {
		if _, err := os.Lstat(p); err == nil {
			present = append(present, p)
		}
	}
	return present
})

// procHidden show as empty, of what is in the directory proc. It is looked for anew for
// each sandbox (25 calls, 50 µs): modules of the kernel bring some of it and take it away.
func procHidden(proc string) (present []sandbox.Mask) {
	for _, name := range []string{
		"acpi", "asound", "driver", "dynamic_debug", "pressure", "scsi",
		"cmdline", "config.gz", "diskstats", "interrupts", "iomem", "ioports", "kallsyms",
		"kcore", "key-users", "keys", "kmsg", "latency_stats", "modules", "partitions",
		"sched_debug", "softirqs", "sysrq-trigger", "timer_list", "timer_stats",
	} {
		// What only root in the first user namespace may open, no program inside
		// may, whatever rights it gets hold of: the owner has no number there.
		if info, err := os.Lstat(proc + "/" + name); err == nil && info.Mode().Perm()&0o007 != 0 {
			present = append(present, sandbox.Mask{Target: "/proc/" + name, Dir: info.IsDir()})
		}
	}
	return present
}
