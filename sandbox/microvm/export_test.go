// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// TryMachine is tryMachine.
var TryMachine = (*Driver).tryMachine

// What tests look at.
var (
	Sum         = sum
	WriteCopies = writeCopies
	NewConsole  = newConsole
	NewOrders   = newOrders
	PackDisk    = packDisk
	UnpackDisk  = unpackDisk
	NewQMP      = newQMP
)

// Call is qmp.call, LastLines and Panicked are the console's, OOM says whether the
// agent's word was heard.
func (m *qmp) Call(ctx context.Context, command string) error { return m.call(ctx, command) }
func (c *console) LastLines(n int) string                     { return c.lastLines(n) }
func (c *console) Panicked() bool                             { return c.panicked() }
func (c *console) OOM() <-chan struct{}                       { return c.oom }

func (o *orders) Give(ctx context.Context, order boot.Order) error { return o.give(ctx, order) }

// ReadWritten reads what a snapshot says of itself.
func ReadWritten(dir string) error {
	_, err := readWritten(dir)
	return err
}

// Load has the QEMU at the other end of conn read a machine.
func Load(ctx context.Context, conn *net.UnixConn, r io.Reader) error {
	q, err := newQMP(ctx, conn)
	if err != nil {
		return err
	}
	return (&qemuMonitor{qmp: q}).load(ctx, r)
}

// Kept is what a sparse file holds to which that was written in such pieces.
func Kept(f *os.File, pieces ...[]byte) error {
	s := &sparse{f: f}
	for _, p := range pieces {
		if n, err := s.Write(p); err != nil || n != len(p) {
			return errors.Join(err, io.ErrShortWrite)
		}
	}
	return s.end()
}

// ErrRefused is errRefused.
var ErrRefused = errRefused

// Order gives an order to the first process of a machine.
func Order(ctx context.Context, i sandbox.Instance, o boot.Order) error {
	return i.(*instance).orders.give(ctx, o)
}

// QEMUArgv is QEMU's command line for s, whose machine goes on from its memory or boots.
func QEMUArgv(s *sandbox.Spec, goesOn bool) []string {
	_, room := config(s, wire.NewMark())
	m := newMachine(s, 1, room)
	m.incoming = goesOn
	return (&qemu{machine: Micro, emulated: true}).argv("qemu", m)
}

// Save has the QEMU at the other end of conn write its machine, of which so many bytes are
// taken, each of them within stall, and says how many came.
func Save(ctx context.Context, conn *net.UnixConn, most int64, stall time.Duration) (int64, error) {
	q, err := newQMP(ctx, conn)
	if err != nil {
		return 0, err
	}
	to := &summing{w: io.Discard, sum: sha256.New(), left: most}
	_, err = (&qemuMonitor{qmp: q, stall: stall}).save(ctx, nil, to)
	return to.size, err
}

// ErrStalled is errStalled.
var ErrStalled = errStalled

// StandIn is a machine's instance that has no machine: orders go to guest, and what its
// monitor is asked is noted.
type StandIn struct {
	Asked   []string // "pause", "save", "resume", in their order
	Stalls  bool     // of save
	Sticks  bool     // of resume
	Stopped bool     // its box

	agent net.Conn
	monitor
}

// Instance is its instance, with directories that are mounted copy-on-write.
func (s *StandIn) Instance(guest net.Conn, layered ...string) *instance {
	return &instance{id: "sbx_x", layered: layered, monitor: s, orders: newOrders(guest), box: &box{stop: func() { s.Stopped = true }}}
}

func (s *StandIn) ask(ctx context.Context, what string) error {
	s.Asked = append(s.Asked, what)
	return ctx.Err()
}

func (s *StandIn) pause(ctx context.Context) error { return s.ask(ctx, "pause") }

func (s *StandIn) resume(ctx context.Context) error {
	if err := s.ask(ctx, "resume"); err != nil || !s.Sticks {
		return err
	}
	return errMonitorGone
}

func (s *StandIn) reach(context.Context) error { return nil }

func (s *StandIn) save(ctx context.Context, _ *orders, _ io.Writer) ([]byte, error) {
	if err := s.ask(ctx, "save"); err != nil || !s.Stalls {
		return nil, err
	}
	return nil, errStalled
}

// NewUntried is a driver of Firecracker whose box has no KVM, for a program that stands
// for it (package firecrackertest), with that much memory of its own.
func NewUntried(o Options, share int64) *Driver {
	d := New(o)
	d.opts.Emulated, d.opts.monitor, d.vmm = true, withFirecracker, &firecracker{share: share}
	return d
}

// NewEither is a driver of small machines whose processor is emulated, by QEMU or by a program
// that stands for Firecracker: by that of the two that is here first.
func NewEither(o Options, share int64, firecrackerFirst bool) *Driver {
	o.Emulated = true
	d := New(o)
	q, f := d.vmm, &firecracker{share: share}
	d.vmm = &oneOf{all: []vmm{f, q}, pick: func() vmm {
		if firecrackerFirst {
			return f
		}
		return q
	}}
	return d
}

// MonitorOf is the name of the monitor with which a driver goes on with a snapshot.
func MonitorOf(d sandbox.Driver, dir string) (string, error) {
	w, err := readWritten(dir)
	if err != nil {
		return "", err
	}
	by, err := d.(*Driver).by(w)
	if err != nil {
		return "", err
	}
	return by.vmm.name(), nil
}

// someMachine has copies and a network.
func someMachine(io, iops int64) *machine {
	return &machine{memory: 300, processors: 2, io: io, iops: iops, network: &sandbox.Network{},
		disks: []disk{{rootSerial, boxImage, false}, {copiesSerial, boxCopies, false}, {scratchSerial, boxScratch, true}}}
}

// StartFirecracker has what listens behind dial make a machine with a network and copies.
func StartFirecracker(ctx context.Context, dial func(context.Context) (net.Conn, error)) error {
	a := newFCAPI(dial)
	defer a.close()
	return a.start(ctx, someMachine(3<<20, 1000))
}

// LoadFirecracker has what listens behind dial load a machine whose memory comes from r, and
// whose disks have bounds of their own.
func LoadFirecracker(ctx context.Context, dial func(context.Context) (net.Conn, error), r io.Reader, io, iops int64) error {
	m := &firecrackerMonitor{api: newFCAPI(dial), machine: someMachine(io, iops), life: context.Background()}
	defer m.api.close()
	if err := m.api.greet(ctx); err != nil {
		return err
	}
	return m.load(ctx, r)
}

// SaveFirecracker has what listens behind dial write a machine of one MiB whose agent has sent
// nothing, and copies what it finds: memory of its own, and a directory of the monitor's.
func SaveFirecracker(ctx context.Context, dial func(context.Context) (net.Conn, error), guest net.Conn, memory, dir *os.File, w io.Writer) ([]byte, error) {
	m := &firecrackerMonitor{api: newFCAPI(dial), machine: &machine{memory: 1, processors: 1}, memory: memory, dir: dir}
	m.life, m.end = context.WithCancelCause(ctx)
	defer m.end(nil)
	defer m.api.close()
	var err error
	for _, c := range []**carried{&m.agent, &m.orders} {
		if *c, err = newCarried(); err != nil {
			return nil, err
		}
		defer (*c).close()
	}
	return m.save(ctx, newOrders(guest), w)
}

// FirecrackerBox is how long Firecracker's box lets a file be, and what that shows of a machine
// of so many MiB beside its program.
func FirecrackerBox(s *sandbox.Spec, memory int64) (limit int64, mounts string, err error) {
	f := &firecracker{}
	m, err := f.prepare("", s, newConsole())
	if err != nil {
		return 0, "", err
	}
	defer m.close()
	p := &boxPlan{spec: &sandbox.Spec{StateDir: s.StateDir}, machine: &machine{memory: memory, processors: 1}}
	defer p.close()
	if _, err = m.box(p, "/proc/self/exe"); err != nil {
		return 0, "", err
	}
	for _, m := range p.spec.Mounts {
		mounts += fmt.Sprintln(m.Target, m.Access)
	}
	return p.spec.Limits.FileSize, mounts, nil
}

// Buckets are what one of so many disks has, in bytes or operations and milliseconds, where
// all have so many in a second.
func Buckets(all int64, disks int) (bytes, ops [2]int64) {
	r := rateOf(&machine{io: all, iops: all, disks: make([]disk, disks)})
	return [2]int64{r.Bandwidth.Size, r.Bandwidth.Refill}, [2]int64{r.Ops.Size, r.Ops.Refill}
}

// PauseFirecracker stops the machine and has it go on, as many times.
func PauseFirecracker(ctx context.Context, dial func(context.Context) (net.Conn, error), times int) error {
	m := &firecrackerMonitor{api: newFCAPI(dial)}
	defer m.api.close()
	for range times {
		if err := errors.Join(m.pause(ctx), m.resume(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// ErrNotThere is of what does not listen yet.
var ErrNotThere = errNotThere

// CallPort and DialIn are callPort and dialIn.
var (
	CallPort = callPort
	DialIn   = dialIn
)

// HostKHz is hostKHz.
var HostKHz = hostKHz

// Divide is how long the disk of one directory is, of that many bytes and files.
func Divide(stateDir string, size, files int64) (int64, error) {
	var w scratch
	w.part(size, files, 0o755, sandbox.RootUser())
	err := w.divide(stateDir)
	return w.length, err
}

// LongestFile is how long a monitor can make a file whose machine goes on with the scratch
// that was packed in dir, and is to have such parts.
func LongestFile(stateDir, dir string, parts ...boot.Part) (int64, error) {
	var w scratch
	for range parts {
		w.part(0, 0, 0o755, sandbox.RootUser())
	}
	if err := w.as(parts); err != nil {
		return 0, err
	}
	p := &boxPlan{spec: &sandbox.Spec{}}
	defer p.close()
	err := p.scratch(&sandbox.Spec{StateDir: stateDir}, &w, &written{dir: dir})
	return p.spec.Limits.FileSize, err
}

// ErrMonitorGone is of a monitor that has ended.
var ErrMonitorGone = errMonitorGone

// Failed is why a machine did not start that said something on its console.
func Failed(said string) error {
	i := &instance{console: newConsole()}
	_, _ = i.console.Write([]byte(said))
	return i.failed(errors.New("no answer"))
}

// Begin has a guest that is reached by agent and control become a sandbox.
func Begin(ctx context.Context, agent, control net.Conn) error {
	i := &instance{monitor: &StandIn{agent: agent}, orders: newOrders(control), box: &box{ended: make(chan struct{})}}
	return i.begin(ctx, &boot.Config{})
}

func (s *StandIn) channel() net.Conn { return s.agent }
