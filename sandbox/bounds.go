// SPDX-License-Identifier: Apache-2.0

package sandbox

import "fmt"

// LeastMemory is the smallest limit of memory, in bytes, that can be meant. Below
// it not even a loader and a C library fit; and levels that hold memory page by
// page, or look several times a second, would let such a program pass and call
// that limit enforced.
const LeastMemory = 4 << 20

// LeastOpenFiles is the smallest limit of open files that can be meant: a program has
// its three streams and opens libraries, and levels take some more to begin it.
const LeastOpenFiles = 8

// LeastAgentFiles and LeastAgentProcesses are the least where a guest agent is the
// first process, which has the same limits and some streams and threads of its own. It
// does with half of both where it runs one command.
const (
	LeastAgentFiles     = 32
	LeastAgentProcesses = 16
)

// Check refuses what cannot be meant (ErrInvalid), and a written limit that a
// level that holds limits so cannot hold (ErrUnsupported): the run would have
// less than was asked for. Drivers call it with what their Probe says.
func (l *Limits) Check(holds map[LimitName]Clause) error {
	for name, n := range map[LimitName]int64{
		LimitMemory: l.Memory, LimitProcesses: int64(l.Processes), LimitOpenFiles: int64(l.OpenFiles),
		LimitFileSize: l.FileSize, LimitDisk: l.Disk, LimitInodes: l.Inodes, LimitTmp: l.Tmp,
		LimitIO: l.IO, LimitIOPS: l.IOPS, LimitCPUTime: int64(l.CPUTime),
	} {
		if n < 0 {
			return Errorf(ErrInvalid, fmt.Sprintf("limit %s", name), "%d is less than nothing", n)
		}
	}
	if l.Memory > 0 && l.Memory < LeastMemory {
		return &Error{
			Op: "limit memory", Kind: ErrInvalid,
			Problem: fmt.Sprintf("%d bytes are less than any program needs to start", l.Memory), Hint: "the least is 4MiB",
		}
	}
	if n := int64(l.OpenFiles); n > 0 && n < LeastOpenFiles {
		return tooFew(LimitOpenFiles, n, LeastOpenFiles, "any program")
	}
	if l.CPUs < 0 {
		return Errorf(ErrInvalid, "limit cpus", "%g is less than nothing", l.CPUs)
	}
	for _, name := range LimitNames() {
		if clause := holds[name]; l.Explicit[name] && clause.Enforcement == Off {
			return &Error{
				Op: fmt.Sprintf("limit %s", name), Kind: ErrUnsupported,
				Problem: "it cannot be enforced here: " + clause.Detail, Hint: clause.Remedy,
			}
		}
	}
	return nil
}

// CheckAgent refuses limits that leave a guest agent no room which has them itself.
// Drivers whose agent is held to them call it before they start one.
func (l *Limits) CheckAgent() error {
	const who = "what runs commands in a sandbox"
	if n := int64(l.OpenFiles); n > 0 && n < LeastAgentFiles {
		return tooFew(LimitOpenFiles, n, LeastAgentFiles, who)
	}
	if n := int64(l.Processes); n > 0 && n < LeastAgentProcesses {
		return tooFew(LimitProcesses, n, LeastAgentProcesses, who)
	}
	return nil
}

func tooFew(name LimitName, n, least int64, who string) error {
	return &Error{
		Op: "limit " + string(name), Kind: ErrInvalid,
		Problem: fmt.Sprintf("%d are less than %s needs to start", n, who), Hint: fmt.Sprintf("the least is %d", least),
	}
}

// Bound names the limits that Tightener sets.
func Bound() []LimitName { return []LimitName{LimitMemory, LimitCPUs, LimitProcesses} }

// Within reports whether l bounds memory, processors and processes at least as
// tightly as o does.
func (l *Limits) Within(o *Limits) bool {
	return within(l.Memory, o.Memory) && within(l.CPUs, o.CPUs) && within(l.Processes, o.Processes)
}

func within[T int | int64 | float64](n, bound T) bool { return bound == 0 || n > 0 && n <= bound }

// Shares gives every scratch directory its bounds. What has no size of its own
// gets an equal part of the disk, and so do copy-on-write mounts, of cow bytes
// each: all of them together never take more than the limit. The number of files
// is divided in the same way.
func (s *Spec) Shares() (scratch []Scratch, cow int64) {
	var parts, files int64
	for _, m := range s.Mounts {
		if m.Access == CopyOnWrite {
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
