// SPDX-License-Identifier: Apache-2.0

package docker

import "github.com/caisson-run/caisson/sandbox"

const (
	// agentMemory is the agent's own share on top of what programs may use, in
	// bytes, for the two processes that it may be. Each holds some 6 MB, most of
	// which is the program's text.
	agentMemory = 24 << 20
	// agentTasks are the agent's own threads, and some to spare: the exact
	// number of processes is held by RLIMIT_NPROC in the same place as on other
	// levels, this one holds whatever happens.
	agentTasks = 32
	// podmanTasks is RLIMIT_NPROC of the agent under Podman; programs get their own.
	podmanTasks = 16 << 10
	// maxTerminals bounds the pseudoterminals of one sandbox: there is one pool for
	// all sandboxes of a machine.
	maxTerminals = "64"
	// agentFiles is how many descriptors the agent needs at least.
	agentFiles = 4096
)

// maxPids is the largest number that kernels take for a limit of processes, as no
// machine has more (PID_MAX_LIMIT in include/linux/threads.h).
const maxPids = 4 << 20

// limit writes the limits of a sandbox into the request.
func (h *hostConfig) limit(l *sandbox.Limits, holds map[sandbox.LimitName]sandbox.Clause) {
	held := func(name sandbox.LimitName) bool { return holds[name].Enforcement != sandbox.Off }
	if l.Memory > 0 && held(sandbox.LimitMemory) {
		h.Memory = l.Memory + agentMemory
		h.MemorySwap = h.Memory // memory and swap together: no swap
	}
	if l.CPUs > 0 && held(sandbox.LimitCPUs) {
		h.NanoCpus = int64(l.CPUs * 1e9)
	}
	if l.Processes > 0 {
		h.PidsLimit = hostTasks(h.Runtime, l.Processes)
	}
	h.Ulimits = []ulimit{{"core", 0, 0}, {"sigpending", pendingSignals, pendingSignals}}
	if n := int64(l.OpenFiles); n > 0 {
		n = max(n, agentFiles)
		h.Ulimits = append(h.Ulimits, ulimit{"nofile", n, n})
	}
	if n := l.FileSize; n > 0 {
		h.Ulimits = append(h.Ulimits, ulimit{"fsize", n, n})
	}
}

// pendingSignals is how many signals may wait for the processes of a sandbox, timers
// included. The kernel counts them by user, who may be the same for many containers; as
// sandbox/process has it, but an engine's host is not known here, so it is little. The
// agent leaves half of it to its programs.
const pendingSignals = 512

// socketShare is how many bytes the buffers of internet sockets may take beside
// a memory limit where cgroup v1 counts them apart; see internal/linux/cgroup.
func socketShare(memory int64) int64 { return max(memory/8, 4<<20) }
