// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"fmt"

	"github.com/caisson-run/caisson/sandbox"
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
