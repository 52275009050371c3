// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"maps"
	"reflect"
	"time"
)

// LimitName names a limit in policies, flags, results and records.
type LimitName string

// The limits. The names are the policy file's keys.
const (
	LimitWall      LimitName = "wall"
	LimitCPUTime   LimitName = "cpu_time"
	LimitCPUs      LimitName = "cpus"
	LimitMemory    LimitName = "memory"
	LimitProcesses LimitName = "processes"
	LimitOpenFiles LimitName = "open_files"
	LimitFileSize  LimitName = "file_size"
	LimitDisk      LimitName = "disk"
	LimitInodes    LimitName = "inodes"
	LimitTmp       LimitName = "tmp"
	LimitIO        LimitName = "io"
	LimitIOPS      LimitName = "iops"
	LimitOutput    LimitName = "output"

	// LimitNetwork stands for the budgets of a network, which are no field of
	// Limits: a Result names it when one of them ended the run.
	LimitNetwork LimitName = "network"
)

// LimitNames lists every limit in the order in which they are shown.
func LimitNames() []LimitName {
	return []LimitName{
		LimitWall, LimitCPUTime, LimitCPUs, LimitMemory, LimitProcesses, LimitOpenFiles,
		LimitFileSize, LimitDisk, LimitInodes, LimitTmp, LimitIO, LimitIOPS, LimitOutput,
	}
}

// Limits bound one sandbox. 0 means "no limit of this kind"; the defaults of
// REQUIREMENTS R3 come from DefaultLimits, not from the zero value, because a
// driver must be able to tell "none" from "the usual".
type Limits struct {
	Wall      time.Duration // from the start of the program to its end
	CPUTime   time.Duration // user and system time of all processes together
	CPUs      float64       // share of processors: 0.5 is half of one
	Memory    int64         // bytes programs inside may use, swap off; at least LeastMemory; the level's own share comes on top
	Processes int           // processes and threads; with an agent at least LeastAgentProcesses
	OpenFiles int           // file descriptors per process; at least LeastOpenFiles, with an agent LeastAgentFiles
	FileSize  int64         // bytes of one file
	Disk      int64         // bytes of all disk scratch but /tmp
	Inodes    int64         // files and directories of all disk scratch
	Tmp       int64         // bytes of /tmp
	IO        int64         // block I/O, bytes per second, each direction
	IOPS      int64         // block I/O, operations per second, each direction
	Output    int64         // bytes kept per output stream

	// OutputKill ends the program when it writes more than Output; otherwise
	// it goes on and the rest is counted and thrown away.
	OutputKill bool

	// Explicit holds the limits that are written down. One of them that a level
	// cannot enforce refuses the run; a built-in default that it cannot enforce
	// is shown as emulated or off.
	Explicit map[LimitName]bool
}

// DefaultLimits are what a call gets by default (REQUIREMENTS R3): 30 s, 1 CPU,
// 256 MiB, 128 processes, 1024 files, 512 MiB of disk, 100 MiB of /tmp, 1 MiB
// of output per stream.
func DefaultLimits() Limits {
	const mib = 1 << 20
	return Limits{
		Wall:      30 * time.Second,
		CPUs:      1,
		Memory:    256 * mib,
		Processes: 128,
		OpenFiles: 1024,
		Disk:      512 * mib,
		Inodes:    128 * 1024,
		Tmp:       100 * mib,
		Output:    1 * mib,
	}
}

// InForce reports whether l bounds anything under name.
func (l *Limits) InForce(name LimitName) bool {
	f := l.field(name)
	return f.IsValid() && !f.IsZero()
}

// Clear takes the limit called name away, and that it was written down.
func (l *Limits) Clear(name LimitName) {
	if f := l.field(name); f.IsValid() {
		f.SetZero()
	}
	l.Explicit = maps.Clone(l.Explicit) // it may be shared
	delete(l.Explicit, name)
}

// field is where a limit lies; invalid for a name that is none.
func (l *Limits) field(name LimitName) reflect.Value {
	fields := map[LimitName]any{
		LimitWall: &l.Wall, LimitCPUTime: &l.CPUTime, LimitCPUs: &l.CPUs, LimitMemory: &l.Memory,
		LimitProcesses: &l.Processes, LimitOpenFiles: &l.OpenFiles, LimitFileSize: &l.FileSize,
		LimitDisk: &l.Disk, LimitInodes: &l.Inodes, LimitTmp: &l.Tmp,
		LimitIO: &l.IO, LimitIOPS: &l.IOPS, LimitOutput: &l.Output,
	}
	if p, ok := fields[name]; ok {
		return reflect.ValueOf(p).Elem()
	}
	return reflect.Value{}
}

// Enforcement says how a limit holds.
type Enforcement string

const (
	// Enforced: the kernel or the level itself holds it, always.
	Enforced Enforcement = "enforced"
	// Emulated: it holds, but coarser (sampled, or per process instead of in
	// sum); Clause.Detail says how.
	Emulated Enforcement = "emulated"
	// Off: it does not hold here.
	Off Enforcement = "off"
)

// Clause is how one limit or feature holds on a level of this host.
type Clause struct {
	Enforcement Enforcement `json:"enforcement"`
	Detail      string      `json:"detail,omitempty"` // how, or why not; a phrase
	Remedy      string      `json:"remedy,omitempty"` // the exact command that mends it, where there is one
}

// Capabilities is what a level can do on this host.
type Capabilities struct {
	// Unusable says why the level cannot run at all; empty when it can.
	Unusable string
	// Remedy is the command that mends Unusable.
	Remedy string
	// Notes are further remarks for doctor, one sentence each.
	Notes []string

	Limits map[LimitName]Clause

	Root        bool // the sandbox's root may be had: it is not the host's
	Terminal    bool // PTY with resize and job control
	CopyOnWrite bool
	ReadWrite   bool
	// LiveFiles says that mounted files are the host kernel's own: locks and shared mappings
	// hold between sandboxes and against the host, whose changes make inotify events inside.
	LiveFiles bool
	Masks     bool

	// Executables says that the level holds Spec.Executables.
	Executables bool

	// InertSockets says that a socket or named pipe of the host in a mounted
	// directory leads nowhere, as in a kernel of the sandbox's own. On other
	// levels a read-only mount does not keep code from the process that listens
	// there, so the road hides those that it finds (Spec.Masks).
	InertSockets bool

	Network bool // Spec.Network
	// Wire is how the level takes the sandbox's end of a network; set where
	// Network is true.
	Wire Wire
	// TellsAttempts says that a sandbox without a network may have a wire that leads
	// nowhere, at next to no cost, whose other end tells what was tried.
	TellsAttempts bool
	// NoNetwork says why Network is false on this host, where the level has one
	// elsewhere: Detail and Remedy.
	NoNetwork Clause

	// Pause says that instances are Pausers, Snapshot that they are Snapshotters as
	// well and the driver a Restorer.
	Pause    bool
	Snapshot bool

	// Survives says that instances are Survivors; NoSurvival why not: Detail.
	Survives   bool
	NoSurvival Clause

	// Images says that the root may be a container image (Root.Image), EROFS
	// that the level takes it as one file: no tree is unpacked for it then.
	Images bool
	EROFS  bool
	// OnlyEROFS says that the level takes any root as one file alone: it shows no directory
	// of this host.
	OnlyEROFS bool

	// Changes says that what was changed in a copy-on-write mount can be read: by
	// Spec.OnChanges, and of Instances, which are ChangeReaders.
	Changes bool

	// ScratchInMemory says that what is written to scratch directories counts as
	// memory, too, because the level has no other place for it.
	ScratchInMemory bool

	// SlowStart is how much longer a start may take than on other levels, as where a
	// processor is emulated.
	SlowStart time.Duration

	// Engine names the isolating engine and its version ("gvisor 20260905.0, systrap").
	Engine string
	// EngineDate is the engine's date, for its age; zero when unknown.
	EngineDate time.Time
}
