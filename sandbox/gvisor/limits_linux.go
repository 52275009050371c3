// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// kernelShare is what gVisor itself needs on top of the memory that programs
// may use: its heap, stacks and page tables, and what it keeps per page. It
// is generous: the limit is there to stop programs, not the kernel.
func kernelShare(memory int64) int64 { return 64<<20 + memory/32 }

// hostShare is what the host's group holds beyond what programs may have. Of tasks these
// are gVisor's own threads, and stub processes for the tasks inside: the kernel inside
// holds the exact number (RLIMIT_NPROC); this one keeps a broken kernel from harming the
// host.
func hostShare(l *sandbox.Limits) cgroup.Share {
	return cgroup.Share{Memory: kernelShare(l.Memory), Pids: l.Processes + 512}
}
