// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"io"
	"net"
	"os"
	"time"
)

// Driver is one level of isolation on this host.
//
// A driver is made once and used from many goroutines. It keeps no policy: it
// is told what to build and says what it can build. It holds a sandbox for as
// long as its owner lives; an owner that dies, by SIGKILL too, takes its
// sandboxes with it, but for those that it let outlive it (Survivor).
type Driver interface {
	// Name is what --isolation takes: "gvisor", "process", "docker".
	Name() string

	// Probe reports what this host can do and what is missing, without
	// changing the host. It answers in milliseconds and feeds doctor, explain
	// and the refusal of clauses that cannot be enforced. A level that cannot
	// run at all is an answer (Capabilities.Unusable), not an error.
	Probe(ctx context.Context) (Capabilities, error)

	// Start makes the world of spec with the guest agent as its first
	// process. The caller owns the Instance and must Destroy it. Start
	// returns ErrUnsupported when a clause of spec cannot be enforced here,
	// ErrInvalid when spec contradicts itself; nothing is left behind then.
	Start(ctx context.Context, spec *Spec) (Instance, error)

	// Adopt takes over a sandbox that may outlive its owner (Survivor) before it
	// died or left. spec is the world that it was made with, by ID and StateDir;
	// Root, Mounts and the wire of its Network are not looked at. It has one owner
	// at a time: ErrConflict while the one before lives. ErrNotFound when nothing
	// of it lives, ErrUnsupported on a level whose sandboxes die with their owner.
	Adopt(ctx context.Context, spec *Spec) (*Adopted, error)
}

// Instance is a living sandbox.
type Instance interface {
	// ID is Spec.ID.
	ID() string

	// Dial opens a fresh session with the guest agent and ends the one before
	// it. What is read from it is written by code that may be hostile.
	Dial(ctx context.Context) (net.Conn, error)

	// Usage reads the sandbox's counters. It is cheap enough for twice a
	// second. Who asks when a limit has killed something inside gets the answer
	// when the sandbox has ended for it, or after a moment: a program's end that
	// the agent tells may be the limit's doing.
	Usage(ctx context.Context) (Usage, error)

	// Ended is closed when the sandbox is gone, for whatever reason; Limit
	// then names the limit that ended it, or is empty.
	Ended() <-chan struct{}
	Limit() LimitName

	// Destroy kills everything inside and leaves nothing: no process, mount,
	// cgroup or file. It is idempotent and works on a half-dead sandbox.
	Destroy(ctx context.Context) error
}

// Failer is the optional ability of an Instance to say why it ended where neither code
// inside nor a limit did it: the host's disk is full, say.
type Failer interface {
	// Failure is nil where it knows of nothing. It is known when Ended is closed.
	Failure() error
}

// Adopted is a sandbox with a new owner, who closes the files.
type Adopted struct {
	Instance
	// Hold is what Spec.Hold was, and Far what Network.Far was: nil without.
	Hold, Far *os.File
}

// Survivor is the optional ability of an Instance to outlive its owner
// (Capabilities.Survives, Spec.Outlives). Before Outlive it dies with its owner.
type Survivor interface {
	// Outlive lets it outlive its owner. When its owner is gone it waits for the next one
	// (Driver.Adopt) for grace, or until that time when it is sooner and not zero,
	// and then ends, leaving nothing. A grace of 0 takes that back. It may be
	// called any number of times; the last counts.
	Outlive(grace time.Duration, until time.Time) error

	// Leave lets go of it, as the owner's death would: it ends when it may not
	// outlive its owner. The instance is of no use afterwards, and is not destroyed.
	Leave() error
}

// Sweeper is the optional ability of a Driver to take away what a sandbox has outside
// its state directory, a control group or a container, when its owner was killed.
type Sweeper interface {
	// Sweep removes what the sandbox with the given ID and state directory may have left
	// there, and ends what still runs of it. The caller holds the dead owner's lock. That
	// there is nothing, or that the ID is none of the level's, is no error.
	Sweep(ctx context.Context, id, stateDir string) error
}

// EmptySweeper is the optional ability of a Driver to take away what sandboxes have left
// outside their state directories when these are gone too: control groups.
type EmptySweeper interface {
	// SweepEmpty removes that as far as nothing runs in it, of sandboxes whose state
	// directories lay in dir. It leaves those for which owned says that they have one.
	SweepEmpty(ctx context.Context, dir string, owned func(id string) bool) error
}

// Preparer is the optional ability to make sandboxes before it is known what
// runs in them.
type Preparer interface {
	// Prepare makes the world of spec up to the program in it, which nothing of
	// the caller's has touched yet. It is as much a sandbox as one of
	// Runner.Run, and no less apart from others: two of the same spec share
	// what any two sandboxes do. The caller owns it and must Destroy it. Errors
	// are those of Runner.Run.
	Prepare(ctx context.Context, spec *Spec) (Prepared, error)
}

// Prepared is a sandbox that waits for its program. It dies with its owner.
type Prepared interface {
	// ID is Spec.ID.
	ID() string

	// Run runs exec in it, as Runner.Run would have, once; a second call is
	// ErrConflict. When it returns, nothing that code inside started is left.
	// What the level keeps for the sandbox may be, until Destroy.
	Run(ctx context.Context, exec *Exec) (*Result, error)

	// Usage reads its counters while it waits.
	Usage(ctx context.Context) (Usage, error)

	// Ended is closed when no process of it is left, for whatever reason. Run
	// has an error then when it was not called before.
	Ended() <-chan struct{}

	// Destroy kills everything inside and leaves nothing, as Instance.Destroy.
	Destroy(ctx context.Context) error
}

// Tightener is the optional ability of a Prepared to be held to the limits of
// the run that gets it, where they are tighter than those it was made with.
type Tightener interface {
	// Tighten bounds memory, processors and processes as l does; the rest of l
	// means nothing here. It comes before Run. A bound that is looser than the
	// sandbox was made with is ErrInvalid, one that cannot be set ErrUnsupported
	// or ErrUnavailable; after an error the sandbox may have some of them and is
	// only good to be destroyed.
	Tighten(l Limits) error
}

// Runner is the optional ability to run one program without a guest agent:
// the fastest path a level has.
type Runner interface {
	// Run makes the world of spec, runs exec as its first process, waits for
	// it, and leaves nothing behind, whatever happens. A program that ran is a
	// Result, however it ended; an error means that caisson could not do its
	// part. When ctx ends, everything inside is killed and the Result holds
	// what was measured until then, with Status StatusError and Signal
	// "SIGKILL"; the caller, who knows why it ended ctx, sets the status.
	Run(ctx context.Context, spec *Spec, exec *Exec) (*Result, error)
}

// Varied is the optional ability of a Driver to be had in variants, whose levels
// are called by both names: "docker:runsc".
type Varied interface {
	// Variant is the driver of one, whose Name is the whole; nil when there is
	// none of that name. Whether this host has it says its Probe.
	Variant(name string) Driver
}

// Pauser is the optional ability of an Instance to stand still and go on later
// (Capabilities.Pause). Its memory stays where it is, so it is lost with its
// owner, and with the host's power.
type Pauser interface {
	// Pause stops everything inside at once. Resume lets it go on; a session that
	// was begun before then goes on too, unless its other end gave it up. Both are
	// idempotent. A sandbox that is paused can be destroyed.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// Snapshotter is the optional ability of an Instance to be written down with its
// memory, its processes and its scratch (Capabilities.Snapshot). It is a Pauser, too:
// what stands still is written down as it stands, and goes on standing.
type Snapshotter interface {
	// Snapshot writes the sandbox into dir, a directory of the caller's own, mode
	// 0700, with no file in it. With end it does not run on from that moment, and the
	// caller destroys it; without, it goes on, and so do its sessions. After an
	// error dir is worthless, and the sandbox may have ended, unless it is ErrRunsOn.
	Snapshot(ctx context.Context, dir string, end bool) error
}

// FileSnapshotter is the optional ability of a Snapshotter to be written down
// without its memory.
type FileSnapshotter interface {
	// SnapshotFiles is Snapshot of what is on the disk alone: the scratch, and what
	// was changed over the root. Restore makes a sandbox of it that begins: another
	// boot, with no process, connection or /dev/shm of before.
	SnapshotFiles(ctx context.Context, dir string, end bool) error
}

// Restorer is the ability of a Driver whose instances are Snapshotters to make
// sandboxes of what they wrote. One snapshot makes any number, also at once.
type Restorer interface {
	// Restore is Start of a world that goes on where the one in dir was written
	// down: same processes, memory and scratch. spec is that world's, but for ID,
	// StateDir, Limits that are held from outside, and the wire of its Network.
	// What is open beyond the sandbox is lost: connections are reset. On gVisor they end,
	// where the sandbox was paused first, or are reset once something is sent on them. dir
	// is only read.
	Restore(ctx context.Context, spec *Spec, dir string) (Instance, error)
}

// ChangeReader is the optional ability of an Instance to tell what was changed in a
// copy-on-write mount (Capabilities.Changes).
type ChangeReader interface {
	// ReadChanges writes the layer of the copy-on-write mount of a directory at target to w,
	// as a tar stream; at "/" that of the root file system (Spec.RootChanges), without what
	// is mounted in it, and with owners and times. Nothing inside runs meanwhile; it goes on afterwards, but on a level
	// that cannot have it stand still on this host, which ends it. Names are relative to
	// target. A removal is a character device 0:0. A directory that hides what
	// the host has there says so in a PAX record, SCHILY.xattr.trusted.overlay.opaque or
	// SCHILY.xattr.user.overlay.opaque, with the value "y"; one that was renamed names where
	// the host has it, SCHILY.xattr.trusted.overlay.redirect. What the stream says is code's
	// doing and not to be trusted. ErrInvalid when target is no such mount; ErrUnavailable
	// when the layer has ended with the sandbox.
	ReadChanges(ctx context.Context, target string, w io.Writer) error
}
