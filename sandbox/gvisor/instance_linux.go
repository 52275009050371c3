// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// agentCapabilities are what the agent needs of the sandbox's own root: to
// become the user, to give files away, to signal, and to reach every file.
// Nothing here reaches the host, and none of it is passed on to programs.
var agentCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID",
	"CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP",
}

// instance is a living sandbox: a box whose first process is the agent.
type instance struct {
	box    *box
	self   self
	stream *os.File
	opener *wire.Opener
	log    *os.File    // our end of the agent's log; nil where the shim reads it
	left   atomic.Bool // its owner let go of it

	survives bool // it may be told to stay without its owner

	ended chan struct{}

	mu    sync.Mutex
	last  *protocol.Event             // the end; set before ended is closed
	err   error                       // why there was none
	asked []chan<- *protocol.Counters // who waits for a Usage event
	saved chan error                  // for Saved; nil while no caller waits
	stood chan error                  // for Stood; nil while no caller waits

	pausing sync.Mutex           // held by the caller of Pause or Resume
	reading chan struct{}        // holds a value while a layer is read
	read    chan *protocol.Event // for Read; nil while no caller waits
}

var _ sandbox.Instance = (*instance)(nil)

// startInstance makes the sandbox, or has it go on from the snapshot in the
// directory from, and returns when the agent runs; whether it answers is seen by
// Dial.
func (d *Driver) startInstance(ctx context.Context, spec *sandbox.Spec, from string) (sandbox.Instance, error) {
	if err := spec.Limits.CheckAgent(); err != nil {
		return nil, err
	}
	self, files := self{Mark: wire.NewMark().String()}, ""
	if from != "" {
		was, err := readSelf(from, spec)
		switch {
		case err != nil:
			return nil, err
		case was.Files: // it begins, and is another
			from, files = "", from
		default:
			self = was
		}
	}
	mark, err := wire.ParseMark(self.Mark)
	if err != nil {
		return nil, err
	}
	process := agentProcess(spec, mark)
	process.restarts = process.restarts && from == "" // it has, where it goes on
	b, err := d.newBox(spec, process, self.Base)
	if err != nil {
		return nil, err
	}
	self.Base = uint32(b.plan.ids.rootID)
	b.order.Restore, b.order.Files = from, files
	i := &instance{box: b, self: self, ended: make(chan struct{}), reading: make(chan struct{}, 1)}
	if err := i.start(mark); err != nil {
		return nil, errors.Join(err, b.close())
	}
	started := make(chan struct{})
	go i.follow(started)
	select {
	case <-started:
		return i, nil
	case <-i.ended:
		err = i.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	_ = i.Destroy(context.WithoutCancel(ctx))
	return nil, err
}

// agentProcess is the agent as the first process, as the sandbox's own root.
func agentProcess(spec *sandbox.Spec, mark wire.Mark) first {
	u := spec.User
	argv := []string{guest.AgentArgv0}
	if spec.Snapshots {
		argv = append(argv, "-memory", "-stay", agentStays.String())
	}
	f := first{
		argv: append(argv, "-user", fmt.Sprintf("%d:%d:%s:%s", u.UID, u.GID, u.Name, u.Home)),
		env:  []string{agent.MarkVariable + "=" + mark.String()},
		dir:  "/", user: sandbox.RootUser(), caps: agentCapabilities, agent: true,
		restarts: spec.Snapshots,
	}
	if spec.Sudo {
		f.argv = append(f.argv, "-sudo", "-programs", sandbox.ProgramDir)
		f.caps = slices.Concat(agentCapabilities, rootCapabilities)
	}
	return f
}

// rootCapabilities are what the sandbox's root has beside the agent's own where
// code may become root: with these, Docker's but NET_RAW. None of them is more than gVisor's
// kernel gives its own guest.
var rootCapabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SYS_CHROOT",
}

// start hands the agent its stream on fd 0 and a log on fd 1 and 2.
func (i *instance) start(mark wire.Mark) error {
	program, err := guest.OpenAgent()
	if err != nil {
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the guest agent is missing", Cause: err}
	}
	defer program.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("start sandbox: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "agent"), os.NewFile(uintptr(fds[1]), "agent")
	defer theirs.Close()
	for _, fd := range fds {
		// Best effort: the kernel's default only costs speed.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
	}
	logRead, logWrite, err := os.Pipe()
	if err != nil {
		ours.Close()
		return fmt.Errorf("start sandbox: %w", err)
	}
	defer logWrite.Close()
	if i.box.order.Restore == "" {
		i.box.exec = program
	}
	if i.box.spec.Outlives {
		if err := i.bequeath(ours, logRead); err != nil {
			ours.Close()
			logRead.Close()
			return err
		}
	}
	err = i.box.give(theirs, logWrite, logWrite)
	if err == nil {
		err = i.take(ours, mark)
	}
	if err != nil {
		ours.Close()
		logRead.Close()
		return err
	}
	if i.survives {
		logRead.Close() // the shim reads it
		return nil
	}
	// What the agent complains about is written by the sandbox: for a debugger
	// alone. It is read so that it cannot block.
	i.log = logRead
	go func() { _, _ = io.Copy(io.Discard, logRead) }()
	return nil
}

// take makes ours the stream to the agent. It has been handed to others before:
// asking a file for its number undoes what deadlines need.
func (i *instance) take(ours *os.File, mark wire.Mark) error {
	fd, err := unix.FcntlInt(ours.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return fmt.Errorf("the stream to the agent: %w", err)
	}
	ours.Close()
	i.stream = os.NewFile(uintptr(fd), "agent")
	i.opener = wire.NewOpener(i.stream, mark)
	return nil
}

// follow reads the shim's events until the sandbox is gone.
func (i *instance) follow(started chan<- struct{}) {
	defer close(i.ended)
	for {
		ev, err := i.box.next()
		i.mu.Lock()
		switch {
		case err != nil:
			i.err = err
		case ev.Kind == protocol.Failed:
			i.err = explain(ev)
		case ev.Kind == protocol.Exited:
			i.last = ev
			i.err = sandbox.Errorf(sandbox.ErrUnavailable, "sandbox "+i.box.spec.ID, "it has ended")
		}
		over := i.err != nil
		if i.saved != nil && (over || ev.Kind == protocol.Saved) {
			i.saved <- saveError(ev, i.err)
			i.saved = nil
		}
		if i.stood != nil && (over || ev.Kind == protocol.Stood) {
			i.stood <- stoodError(ev, i.err)
			i.stood = nil
		}
		if i.read != nil && (over || ev.Kind == protocol.Read) {
			i.read <- ev
			i.read = nil
		}
		if ev != nil && ev.Kind == protocol.Usage || over {
			for _, c := range i.asked {
				if ev != nil {
					c <- ev.Counters
				}
				close(c)
			}
			i.asked = nil
		}
		i.mu.Unlock()
		if over {
			return
		}
		if ev.Kind == protocol.Started {
			close(started)
		}
	}
}

func (i *instance) ID() string { return i.box.spec.ID }

func (i *instance) Dial(ctx context.Context) (net.Conn, error) { return i.opener.Open(ctx) }

func (i *instance) Ended() <-chan struct{} { return i.ended }

// Limit names the limit that ended the sandbox, once it has ended.
func (i *instance) Limit() sandbox.LimitName {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.last == nil {
		return ""
	}
	return sandbox.LimitName(i.last.Limit)
}

// Usage asks the shim; after the end it returns the last figures.
func (i *instance) Usage(ctx context.Context) (sandbox.Usage, error) {
	answer := make(chan *protocol.Counters, 1)
	i.mu.Lock()
	if i.last != nil {
		defer i.mu.Unlock()
		return usage(i.last.Counters), nil
	}
	if i.err != nil {
		defer i.mu.Unlock()
		return sandbox.Usage{}, i.err
	}
	i.asked = append(i.asked, answer)
	i.mu.Unlock()
	_ = i.box.shim.command(protocol.Command{Kind: protocol.Measure})
	select {
	case n, ok := <-answer:
		if !ok || n == nil {
			return sandbox.Usage{}, sandbox.Errorf(sandbox.ErrUnavailable, "sandbox "+i.box.spec.ID, "it has ended")
		}
		return usage(n), nil
	case <-ctx.Done():
		return sandbox.Usage{}, context.Cause(ctx)
	}
}

// Destroy ends the sandbox and waits until nothing of it is left, or what is left does
// not end in time, which is an error. One that was let
// go of is not its owner's to destroy.
func (i *instance) Destroy(context.Context) error {
	if i.left.Load() {
		return nil
	}
	i.box.shim.kill()
	<-i.ended // in time: see kill
	err := i.box.close()
	i.stream.Close()
	i.closeLog()
	return err
}

// closeLog stops reading the agent's log, which is over, or the shim's to read.
func (i *instance) closeLog() {
	if i.log != nil {
		i.log.Close()
	}
}
