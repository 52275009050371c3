// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// instance is a living sandbox: a box whose program is the agent.
type instance struct {
	box    *box
	stream *os.File
	opener *wire.Opener
	log    *os.File     // our end of the agent's log
	host   *cgroup.Host // nil without control groups
	pause  pause

	ended chan struct{}
	last  ending // set before ended is closed
}

var _ sandbox.Instance = (*instance)(nil)

// Start makes a living sandbox and returns when the agent is executed; whether
// it answers is seen by Dial.
func (d *Driver) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	i := &instance{host: d.host(), ended: make(chan struct{})}
	if err := i.start(ctx, d, spec); err != nil {
		if i.stream != nil {
			i.stream.Close()
		}
		if i.log != nil {
			i.log.Close()
		}
		return nil, err
	}
	return i, nil
}

// start hands the agent its stream on fd 0 and a log on fd 1 and 2.
func (i *instance) start(ctx context.Context, d *Driver, spec *sandbox.Spec) error {
	program, err := guest.OpenAgent()
	if err != nil {
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the guest agent is missing", Cause: err}
	}
	defer program.Close()
	theirs, err := i.connect()
	if err != nil {
		return err
	}
	defer theirs.Close()
	logRead, logWrite, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start sandbox: %w", err)
	}
	defer logWrite.Close()
	// What the agent complains about is written by the sandbox: for a debugger
	// alone. It is read so that it cannot block.
	i.log = logRead
	go func() { _, _ = io.Copy(io.Discard, logRead) }()
	mark, u := wire.NewMark(), spec.User
	i.opener = wire.NewOpener(i.stream, mark)
	i.box, err = d.newBox(spec, first{
		argv:  []string{guest.AgentArgv0, "-user", fmt.Sprintf("%d:%d:%s:%s", u.UID, u.GID, u.Name, u.Home)},
		env:   []string{agent.MarkVariable + "=" + mark.String()},
		dir:   "/",
		agent: program,
		stdio: [3]*os.File{theirs, logWrite, logWrite},
	})
	if err != nil {
		return err
	}
	started, ended := i.box.live()
	if err := i.box.awaitStart(ctx, started); err != nil {
		_ = i.box.close() // that says why, or the same
		return err
	}
	go i.follow(ended)
	return nil
}

// connect makes the agent's stream.
func (i *instance) connect() (theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "agent")
	if err := unix.SetNonblock(fds[0], true); err != nil { // deadlines need it
		theirs.Close()
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	i.stream = os.NewFile(uintptr(fds[0]), "agent")
	for _, fd := range fds {
		// Best effort: the kernel's default only costs speed.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
	}
	return theirs, nil
}

// follow looks after limits until the sandbox is gone.
func (i *instance) follow(ended <-chan ending) {
	defer close(i.ended)
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	for {
		select {
		case i.last = <-ended:
			return
		case <-watch.C:
			i.box.watch()
		}
	}
}

func (i *instance) ID() string { return i.box.spec.ID }

func (i *instance) Dial(ctx context.Context) (net.Conn, error) { return i.opener.Open(ctx) }

func (i *instance) Ended() <-chan struct{} { return i.ended }

// Limit names the limit that ended the sandbox, once it has ended.
func (i *instance) Limit() sandbox.LimitName { return i.box.endedBy() }

// lastLook is how long Usage waits for the end of a sandbox that a limit ends.
const lastLook = 2 * time.Second

// Usage reads the counters; after the end it returns the last figures. A caller
// that asks after a program's end learns a limit that ended it by then: the
// kernel counts what it kills before it kills it.
func (i *instance) Usage(ctx context.Context) (sandbox.Usage, error) {
	select {
	case <-i.ended:
		return i.last.usage, nil
	default:
	}
	u := i.box.measure()
	if !i.box.overLimit() {
		return u, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	select {
	case <-i.ended:
		return i.last.usage, nil
	case <-ctx.Done():
		return u, nil
	}
}

// Destroy ends the sandbox and waits until nothing of it is left, for endLimit.
func (i *instance) Destroy(context.Context) error {
	i.box.kill()
	i.endPause()
	err := i.box.close()
	select {
	case <-i.box.gone:
		<-i.ended // which follow closes at once
	default: // that is the error
	}
	i.stream.Close()
	i.log.Close()
	return err
}
