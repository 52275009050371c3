// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Router is a router's process and its owner's end of it.
type Router struct {
	o       Options
	process *process // nil as long as runs is not set
	conn    net.Conn
	in      *bufio.Scanner
	nic     *os.File
	// far is the router's own end of the wire. It is kept open: gVisor's kernel
	// reads a wire without another end over and over, and a router that died
	// must be a silence, not a busy loop.
	far *os.File

	opened chan struct{} // closed when its program is open, or cannot be
	first  watch         // for the packet that it is started by
	begun  chan struct{} // closed when the process was started, or is not going to be
	began  func()        // closes it
	ready  chan struct{} // closed when packets are read
	once   sync.Once     // closes it
	over   chan struct{} // closed when nothing more is told

	settled chan struct{} // closed when the first packet is not waited for any more

	launching sync.Mutex // held while the process is started
	launch    *launch    // guarded by launching; nil before the program is open, and when no packet is waited for

	changing sync.Mutex    // held by the caller that waits for an answer
	changed  chan struct{} // has an element for each change that is in force
	live     chan int      // has the answer to Count

	mu      sync.Mutex
	out     *json.Encoder
	report  Report
	failed  error
	done    bool // the router has said its last word, or has nothing to say
	wanted  bool // a caller waits for it, packets or not
	came    bool // a packet was on the wire before
	runs    bool // there is a process, which is to be waited for
	waits   bool // it was started before anything asked for it, and is to read no packet yet
	stands  bool // it has said that it is ready to read packets
	reads   bool // it was told to read packets
	closing bool
	reaped  sync.Once
	tell    *rate.Limiter
	omitted int64 // records that are not in report
	untold  int64 // those that Record was not told, either
	// renewing are the secrets that are being renewed, by name.
	renewing map[string]bool
	renewals sync.WaitGroup
}

// endGrace is how long a router may take to close everything, and changeGrace how
// long to put other rules in force.
const (
	endGrace    = 3 * time.Second
	changeGrace = 10 * time.Second
)

// Start makes a wire whose router is started by the first packet, or when a caller
// waits for Ready, which says what went wrong. It does not wait for that itself. The
// caller must Close it.
func Start(o Options) (*Router, error) {
	if o.Wire != sandbox.WirePackets && o.Wire != sandbox.WireDevice {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "start router", "no level takes a wire of the kind %q", o.Wire)
	}
	nic, theirNIC, err := o.ends()
	if err != nil {
		return nil, cannot("no wire can be made", err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		nic.Close()
		theirNIC.Close()
		return nil, cannot("no socket can be made", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "router"), os.NewFile(uintptr(fds[1]), "owner")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		theirs.Close()
		nic.Close()
		theirNIC.Close()
		return nil, cannot("no socket can be made", err)
	}
	r := &Router{
		o: o, conn: conn, nic: nic, far: theirNIC, in: bufio.NewScanner(conn), out: json.NewEncoder(conn), opened: make(chan struct{}), begun: make(chan struct{}),
		settled: make(chan struct{}), ready: make(chan struct{}), over: make(chan struct{}), changed: make(chan struct{}, 1), live: make(chan int, 1),
	}
	r.began = sync.OnceFunc(func() { close(r.begun) })
	r.in.Buffer(nil, wire.MaxLine)
	r.tell = rate.NewLimiter(rate.Every(wire.RecordEvery/2), toldAtOnce)
	order := &wire.Order{Rules: o.Rules, Budget: o.Budget, Guest: Guest.String(), Gateway: Gateway.String(), MTU: MTU, Closed: o.Closed, Device: o.Wire == sandbox.WireDevice}
	go r.await(order, theirs)
	return r, nil
}

// ends are the sandbox's end of the wire, which is nil when it has it already, and
// the router's.
func (o *Options) ends() (nic, far *os.File, err error) {
	if o.Far != nil {
		return nil, o.Far, nil
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, fd := range fds {
		widen(fd)
	}
	return os.NewFile(uintptr(fds[0]), "nic"), os.NewFile(uintptr(fds[1]), "nic"), nil
}

// widen lets the wire hold more than one long packet. The kernel's default of
// 208 KiB does too; more only makes it faster, where one may have it.
func widen(fd int) {
	const size = 2 << 20
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
	}
}

func cannot(problem string, err error) error {
	return &sandbox.Error{Op: "start router", Kind: sandbox.ErrUnavailable, Problem: problem, Cause: err, Hint: sandbox.Hint(err)}
}

func (r *Router) send(v any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(v)
}

// write is called with r.mu held.
func (r *Router) write(v any) error {
	_ = r.conn.SetWriteDeadline(time.Now().Add(endGrace))
	return r.out.Encode(v)
}

// NIC is the sandbox's end of the wire, until Close, as Options.Wire says.
func (r *Router) NIC() *os.File { return r.nic }

// Started waits until the router can be started, or says why it cannot. What is sent
// over the wire from then on starts it, and waits for it.
func (r *Router) Started() error {
	<-r.opened
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// want has the router started, packets or not.
func (r *Router) want() {
	r.mu.Lock()
	r.wanted = r.wanted || !r.closing
	r.mu.Unlock()
	r.first.end()
}

// Far is the router's own end of the wire, until Close: for who keeps a copy of it,
// so that another router can take this one's place.
func (r *Router) Far() *os.File { return r.far }

// Ready starts the router if no packet has, and waits until packets are read, or says
// why that will not be.
func (r *Router) Ready(ctx context.Context) error {
	r.want()
	select {
	case <-r.ready:
		return nil
	case <-r.over:
		r.mu.Lock()
		defer r.mu.Unlock()
		var known *sandbox.Error
		if errors.As(r.failed, &known) {
			return known
		}
		return cannot("the router ended early", r.failed)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Live is how many connections go through it now. One that reads no packets yet has none.
func (r *Router) Live(ctx context.Context) (int, error) {
	r.mu.Lock()
	reads, failed := r.reads, r.failed
	r.mu.Unlock()
	if failed != nil {
		return 0, cannot("the router ended early", failed)
	}
	if !reads {
		return 0, nil
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	select {
	case <-r.live: // of nothing that was asked for
	default:
	}
	if err := r.send(wire.Command{Kind: wire.Count}); err != nil {
		return 0, cannot("the router does not hear", err)
	}
	late := time.NewTimer(changeGrace)
	defer late.Stop()
	select {
	case n := <-r.live:
		return n, nil
	case <-r.over:
		return 0, cannot("the router ended", nil)
	case <-ctx.Done():
		return 0, cannot("the caller did not wait for the count", context.Cause(ctx))
	case <-late.C:
		return 0, cannot("the router does not count", nil)
	}
}

// Change puts other rules in force; when it returns, connections that they do not
// allow are closed. After an error it is not known which rules are in force, and
// the router is to be closed.
func (r *Router) Change(ctx context.Context, rules wire.Rules) error {
	if err := r.Ready(ctx); err != nil {
		return err
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	select {
	case <-r.changed: // of nothing that was asked for
	default:
	}
	if err := r.send(wire.Command{Kind: wire.Change, Rules: &rules}); err != nil {
		return cannot("the router does not hear", err)
	}
	late := time.NewTimer(changeGrace)
	defer late.Stop()
	select {
	case <-r.changed:
		return nil
	case <-r.over:
		r.mu.Lock()
		defer r.mu.Unlock()
		return cannot("the router ended instead of changing its rules", r.failed)
	case <-ctx.Done():
		return cannot("the caller did not wait for the change", context.Cause(ctx))
	case <-late.C:
		return cannot("the router does not change its rules", nil)
	}
}

// Close ends the router, waits until nothing of it is left, and says what went
// through. It may be called twice; the second time it says the same.
func (r *Router) Close() Report {
	rep := r.Stop()
	r.reaped.Do(func() {
		if r.runs {
			late := time.AfterFunc(endGrace, r.process.kill)
			r.process.wait()
			late.Stop()
		}
		r.renewals.Wait()
		r.conn.Close()
		r.nic.Close()
		r.far.Close()
	})
	return rep
}

// Stop closes the network and says what went through. The router's process may
// still be ending. One that has not begun to read packets is not waited for when
// none waits for it: it has nothing to say.
func (r *Router) Stop() Report {
	r.mu.Lock()
	before := r.closing
	r.closing = true
	r.mu.Unlock()
	r.first.end()
	<-r.settled
	r.mu.Lock()
	first, unread := !before && r.runs, !r.reads && !r.came
	if unread {
		r.done = r.done || r.runs // nothing went through
	}
	r.mu.Unlock()
	if first && unread {
		r.process.kill()
	} else if first {
		late := time.AfterFunc(endGrace, r.process.kill)
		defer late.Stop()
		select {
		case <-r.ready:
		case <-r.over:
		}
		_ = r.send(wire.Command{Kind: wire.End})
	}
	<-r.over
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Incomplete = !r.done
	rep := r.report
	rep.Totals.Unrecorded += r.untold
	rep.Omitted = rep.Totals.Unrecorded + r.omitted
	return rep
}

// PID is the router's process, for tests and for who looks after processes. It waits
// until there is one; 0 says that there is none, and never will be.
func (r *Router) PID() int {
	<-r.begun
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.runs {
		return 0
	}
	return r.process.pid
}
