// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	// agentMemory is the agent's own share on top of what programs may use, in
	// bytes, for the two processes that it may be. Each holds some 6 MB, most of
	// which is the program's text.
	agentMemory = 24 << 20
	// agentTasks are the agent's own threads, and some to spare: the exact
	// number of processes is held by RLIMIT_NPROC in the same place as on other
	// levels, this one holds whatever happens.
	agentTasks = 32
	// agentFiles is how many descriptors the agent needs at least.
	agentFiles = 4096
)

// checkLimits refuses what cannot be meant, and what somebody wrote down and
// cannot be held here: the run would have less than was asked for.
func checkLimits(l *sandbox.Limits, holds map[sandbox.LimitName]sandbox.Clause) error {
	for name, n := range map[sandbox.LimitName]int64{
		sandbox.LimitMemory: l.Memory, sandbox.LimitProcesses: int64(l.Processes), sandbox.LimitOpenFiles: int64(l.OpenFiles),
		sandbox.LimitFileSize: l.FileSize, sandbox.LimitDisk: l.Disk, sandbox.LimitInodes: l.Inodes, sandbox.LimitTmp: l.Tmp,
		sandbox.LimitIO: l.IO, sandbox.LimitIOPS: l.IOPS, sandbox.LimitCPUTime: int64(l.CPUTime),
	} {
		if n < 0 {
			return sandbox.Errorf(sandbox.ErrInvalid, fmt.Sprintf("limit %s", name), "%d is less than nothing", n)
		}
	}
	if l.CPUs < 0 {
		return sandbox.Errorf(sandbox.ErrInvalid, "limit cpus", "%g is less than nothing", l.CPUs)
	}
	for _, name := range sandbox.LimitNames() {
		if clause := holds[name]; l.Explicit[name] && clause.Enforcement == sandbox.Off {
			return &sandbox.Error{
				Op: fmt.Sprintf("limit %s", name), Kind: sandbox.ErrUnsupported,
				Problem: "it cannot be enforced here: " + clause.Detail, Hint: clause.Remedy,
			}
		}
	}
	return nil
}

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
		h.PidsLimit = int64(l.Processes) + agentTasks
	}
	h.Ulimits = []ulimit{{"core", 0, 0}}
	if n := int64(l.OpenFiles); n > 0 {
		n = max(n, agentFiles)
		h.Ulimits = append(h.Ulimits, ulimit{"nofile", n, n})
	}
	if n := l.FileSize; n > 0 {
		h.Ulimits = append(h.Ulimits, ulimit{"fsize", n, n})
	}
}

// shares gives every scratch directory its bounds. What has no size of its own
// gets an equal part of the disk, and so do copy-on-write mounts (cow): all of
// them together never take more than the limit. The number of files is divided
// in the same way.
func shares(s *sandbox.Spec) (scratch []sandbox.Scratch, cow int64) {
	var parts, files int64
	for _, m := range s.Mounts {
		if m.Access == sandbox.CopyOnWrite {
			parts++
		}
	}
	for _, sc := range s.Scratch {
		if sc.Memory {
			continue
		}
		if sc.Size == 0 {
			parts++
		}
		if sc.Inodes == 0 {
			files++
		}
	}
	scratch = append(scratch, s.Scratch...)
	for i := range scratch {
		sc := &scratch[i]
		if !sc.Memory && sc.Size == 0 && s.Limits.Disk > 0 {
			sc.Size = max(s.Limits.Disk/parts, 1)
		}
		if !sc.Memory && sc.Inodes == 0 && s.Limits.Inodes > 0 {
			sc.Inodes = max(s.Limits.Inodes/files, 1)
		}
		if sc.Inodes == 0 && sc.Size > 0 {
			sc.Inodes = max(sc.Size/4096, 16)
		}
	}
	return scratch, s.Limits.Disk / max(parts, 1)
}
