// SPDX-License-Identifier: Apache-2.0

// Package protocol is what the gVisor driver and its shim say to each other: a
// InitMessage and an Order down, then Events up and Commands down, on a socket that
// only these two processes hold. The next owner of a persistent sandbox says
// a Claim on a connection of its own, gets a Legacy, and goes on as the one before.
package protocol

import (
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Version is that of everything in this package: a shim of one may outlive its owner,
// and the next one be of another. Who changes what either side says, or what it means,
// counts it up. Whatever the version, a Claim and a Legacy have their Version, Refused
// and PID as they are here, and a Command that is an Outlive without a grace, followed
// by a hangup, ends the sandbox: so that versions that differ can say so and end it.
// Shims from before there were versions have 0.
const Version = 5

// FD is the shim's end of the socket.
const FD = 3

// FirstFile is the index of the first file that Order.Spec names as
// "fd:<index>", among the files that come with the order; before it are the
// first process's standard input, output and error output.
const FirstFile = 3

// LastFile is the highest number of a descriptor that the shim is started with:
// its own program, open.
const LastFile = 255

// Argv0 is how the binary is started to become a shim.
const Argv0 = "caisson-shim"

// Slack is for how many nanoseconds the kernel may put off timers of the shim and of
// gVisor's gofer and sentry, which inherit it (PR_SET_TIMERSLACK).
//
// While a Go program is busy a thread of its runtime looks after the others every
// 20 µs, which the 50 µs of slack that every process has make 70. In four processes
// that was a tenth of the processor time of a run. A program inside that sleeps is
// woken later by as much at most; gVisor waits in whole milliseconds anyway.
const Slack = 300_000

// InitMessage tells the shim what it has to take away when its owner is gone. It
// waits on the socket when the shim starts.
type InitMessage struct {
	// StateDir is the sandbox's own directory.
	StateDir string `json:"state_dir"`
	// Cgroup is where the sandbox is; nil when it is in the owner's.
	Cgroup *Cgroup `json:"cgroup,omitempty"`
}

// Order tells the shim what to make. It may come much later than the InitMessage, or
// never: then the owner hangs up, or kills the shim.
type Order struct {
	ID string `json:"id"`
	// StateDir is the sandbox's own directory.
	StateDir string `json:"state_dir"`
	// Spec is the OCI runtime spec, as JSON. Mount sources of the form
	// "fd:<index>" mean the files that come with the order.
	Spec []byte `json:"spec"`
	// BootSpec is what the kernel inside reads, where that has to differ.
	BootSpec []byte `json:"boot_spec,omitempty"`
	// StageScratch says that the directories in StateDir which Spec has for scratch
	// are not there: the shim has others for gVisor, and makes the files behind them.
	StageScratch bool `json:"stage_scratch,omitempty"`
	// Live are the targets of mounts through which is written to the host's files. What
	// else is writable in Spec is copy-on-write where Flags have an overlay.
	Live []string `json:"live,omitempty"`
	// ExecFile, when not 0, is the index of the file that the first process
	// executes, whatever there is inside.
	ExecFile int `json:"exec_file,omitempty"`
	// Network, when not nil, is the sandbox's wire.
	Network *Network `json:"network,omitempty"`
	// Restore, when not empty, is the directory of a snapshot: the sandbox goes on
	// from there instead of beginning.
	Restore string `json:"restore,omitempty"`
	// Files, when not empty, is the directory of a snapshot of files alone: the
	// sandbox begins, with its scratch as it is there.
	Files string `json:"files,omitempty"`
	// Handover, when not nil, is what the sandbox needs to stay without its owner.
	Handover *Handover `json:"will,omitempty"`
	// Changes, when not nil, says that layers of copy-on-write mounts are asked for: at the
	// end, or by commands.
	Changes *Changes `json:"changes,omitempty"`
	// Flags are gVisor's own, name to value.
	Flags map[string]string `json:"flags"`
	// Memory, when not 0, is what programs inside may use, in bytes. The
	// kernel inside is asked several times a second; more kills the sandbox.
	// A control group, where there is one, holds it besides.
	Memory int64 `json:"memory,omitempty"`
	// KernelShare, when not 0, says that no control group bounds memory: so
	// many bytes the kernel inside may hold on top of Memory.
	KernelShare int64 `json:"kernel_share,omitempty"`
}

// KernelShare is how many bytes gVisor itself needs on top of the memory that programs
// may use: its heap, stacks and page tables, and what it keeps per page. It
// is generous: the limit is there to stop programs, not the kernel.
func KernelShare(memory int64) int64 { return 64<<20 + memory/32 }

// Changes says how layers of copy-on-write mounts are asked for.
type Changes struct {
	// Layers are those that are written once no program runs any more, one after the
	// other. Without any, each is written when a Command asks for it.
	Layers []Layer `json:"layers,omitempty"`
}

// Layer is a copy-on-write mount, and where its layer is written.
type Layer struct {
	Target string `json:"target"` // inside
	File   int    `json:"file"`   // the index of the file, a pipe
}

// Handover is what an owner leaves to the next one, by indexes of files that come
// with the order. The shim holds them for as long as the sandbox lives.
type Handover struct {
	// Socket listens for claims: ClaimName in StateDir.
	Socket int `json:"socket"`
	// Stream is the owner's end of the stream to the agent, Log of its output,
	// which the shim reads and throws away.
	Stream int `json:"stream"`
	Log    int `json:"log"`
	// Hold, when not 0, is the lock of StateDir, and Far the router's end of the
	// wire.
	Hold int `json:"hold,omitempty"`
	Far  int `json:"far,omitempty"`
	// Self is for the next owner alone.
	Self []byte `json:"self"`
}

// ClaimName is the socket, in StateDir, on which a sandbox without an owner is
// claimed.
const ClaimName = "claim"

// Claim is what the next owner says first.
type Claim struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
}

// Legacy is the answer. With it come the files of the Handover that are named here, by
// their index plus 1; 0 is none.
type Legacy struct {
	Version int `json:"version"`
	// Refused says why there is none: it has an owner, or has ended.
	Refused Refusal `json:"refused,omitempty"`
	Self    []byte  `json:"self,omitempty"`
	Stream  int     `json:"stream,omitempty"`
	Hold    int     `json:"hold,omitempty"`
	Far     int     `json:"far,omitempty"`
	// PID is the shim, Cgroup where it is.
	PID    int     `json:"pid,omitempty"`
	Cgroup *Cgroup `json:"cgroup,omitempty"`
}

// Refusal is why a claim is refused.
type Refusal string

// The refusals.
const (
	Owned Refusal = "owned" // it has an owner, who lives
	Over  Refusal = "over"  // it has ended
	Wrong Refusal = "wrong" // it is another sandbox
	// Foreign: the claim is of another Version, and the sandbox is ended.
	Foreign Refusal = "foreign"
)

// Network is the wire that the kernel inside gets beside its loopback.
type Network struct {
	NIC     int    `json:"nic"` // the index of the file
	Address string `json:"address"`
	Gateway string `json:"gateway"`
	MTU     int    `json:"mtu"`
}

// Cgroup names the control group that the driver made and the shim was
// started in.
type Cgroup struct {
	Dirs []string `json:"dirs"`
	// Outside is where the owner itself is: where the shim goes to remove the
	// group when the owner cannot.
	Outside []string `json:"outside"`
}

// EventKind says what an Event tells.
type EventKind string

// The events, in the order in which they come. Usage, Saved, Read and Stood answer Commands.
const (
	Started EventKind = "started" // the first process runs
	Usage   EventKind = "usage"
	Saved   EventKind = "saved"   // the snapshot is written, or Error says why not; answers Save
	Read    EventKind = "read"    // the layer is written, or Error says why not; answers ReadLayer
	Stood   EventKind = "stood"   // it stands still, or goes on, or Error says why not; answers Freeze and Thaw
	Stopped EventKind = "stopped" // no program runs any more, and the layers are being written
	Exited  EventKind = "exited"  // the first process ended; everything is gone
	Failed  EventKind = "failed"  // the sandbox could not be made; everything is gone
)

// Event is one line from the shim.
type Event struct {
	Kind EventKind `json:"kind"`
	// Error is why something failed. With Exited it is a sentence about the end, where
	// there is more to say than Limit does.
	Error string `json:"error,omitempty"`
	// NoLayer says that Error is so because there is no such mount (Read).
	NoLayer bool `json:"no_layer,omitempty"`
	// Advice is what goes with Error, where that was an error for people; see Fail.
	Advice *Advice `json:"advice,omitempty"`

	// WaitStatus is the first process's, as wait4(2) has it (Exited).
	WaitStatus uint32 `json:"wait_status,omitempty"`
	// Limit names the limit that ended the sandbox, or is empty (Exited).
	Limit string `json:"limit,omitempty"`

	Counters *Counters     `json:"counters,omitempty"` // Usage and Exited
	Wall     time.Duration `json:"wall,omitempty"`     // Exited: from start to end of the first process
}

// Counters are read from the sandbox's control group or, without one, from
// its processes.
type Counters struct {
	CPU        *time.Duration `json:"cpu,omitempty"`
	Memory     *int64         `json:"memory,omitempty"`
	MemoryPeak *int64         `json:"memory_peak,omitempty"`
	Processes  *int           `json:"processes,omitempty"`
	// Hit says when a call last failed for a limit.
	Hit map[sandbox.LimitName]time.Time `json:"hit,omitempty"`
}

// CommandKind says what a Command wants.
type CommandKind string

// The commands. EOF on the socket is Kill, unless the last Outlive says otherwise.
const (
	Measure CommandKind = "measure" // answer with a Usage event
	Signal  CommandKind = "signal"  // deliver Signal to the first process's group
	Kill    CommandKind = "kill"    // end everything
	Save    CommandKind = "save"    // write a snapshot into Dir; answer with Saved
	Stop    CommandKind = "stop"    // end all programs, and write the layers of Order.Changes
	Outlive CommandKind = "outlive" // stay without an owner for Grace, at most until Until
	// Freeze has no program run until Thaw, or until there is no owner. Both are answered
	// with Stood, and done already where it is so.
	Freeze CommandKind = "freeze"
	Thaw   CommandKind = "thaw"
	// ReadLayer writes the layer of Target to the file that comes with it; answer with Read.
	ReadLayer CommandKind = "read_layer"
)

// Command is one line to the shim.
type Command struct {
	Kind   CommandKind `json:"kind"`
	Signal int         `json:"signal,omitempty"`
	// Dir is an empty directory for a snapshot; End says that the sandbox does not
	// run on from there, Files that it is one of the scratch alone (Save).
	Dir   string `json:"dir,omitempty"`
	End   bool   `json:"end,omitempty"`
	Files bool   `json:"files,omitempty"`
	// Target is the copy-on-write mount whose layer is to be written to the file that
	// comes with the command (ReadLayer).
	Target string `json:"target,omitempty"`
	// WithFile says that a file comes with it; SendCommand sets it.
	WithFile bool `json:"with_file,omitempty"`
	// Grace is 0 for a sandbox that dies with its owner; Until is zero for no
	// bound but that (Outlive).
	Grace time.Duration `json:"grace,omitempty"`
	Until time.Time     `json:"until,omitzero"`
}
