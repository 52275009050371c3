// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/boot"
)

// pause is taken twice as well as once.
func (m *firecrackerMonitor) pause(ctx context.Context) error {
	return m.api.call(ctx, http.MethodPatch, "/vm", fcState{"Paused"}, nil)
}

// resume is taken twice, too. A first process that has lost its connection gets another.
func (m *firecrackerMonitor) resume(ctx context.Context) error {
	err := m.api.call(ctx, http.MethodPatch, "/vm", fcState{"Resumed"}, nil)
	if err == nil && m.cut {
		err = m.joinAgain(ctx, m.orders, boot.ControlPort)
		m.cut = err != nil
	}
	return err
}

// reach connects to an agent that was parted from: the machine takes that connection once it
// was told that its sandbox goes on.
func (m *firecrackerMonitor) reach(ctx context.Context) (err error) {
	if m.parted {
		err = m.joinAgain(ctx, m.agent, boot.Port)
		m.parted = err != nil
	}
	return err
}

func (m *firecrackerMonitor) joinAgain(ctx context.Context, c *carried, port string) error {
	ctx, cancel := m.alive(ctx)
	defer cancel()
	ctx, cancelWait := context.WithTimeoutCause(ctx, orderTimeout, errOrderTimeout)
	defer cancelWait()
	return m.join(ctx, c, port)
}

// save has Firecracker write a machine into files of its box, and copies its memory to w. These
// files stay Firecracker's: what it does with them later changes nothing of the copy. The
// machine's connections do not outlive that, so both sides part before.
func (m *firecrackerMonitor) save(ctx context.Context, o *orders, w io.Writer) (devices []byte, err error) {
	if m.memory == nil {
		return nil, errors.New("it was not started as one that may be")
	}
	ctx, cancel := m.alive(ctx)
	defer cancel()
	if !m.parted {
		err := m.resume(ctx)
		if err == nil {
			err = m.part(ctx, o)
		}
		m.hangUp()                                                    // while the machine can see it
		if perr := m.pause(context.WithoutCancel(ctx)); perr != nil { // it may run on
			err = errors.Join(err, fmt.Errorf("%w: %w", errStalled, perr))
		}
		if err != nil {
			return nil, err
		}
	}
	m.hangUp()
	defer func() { err = errors.Join(err, m.empty()) }()
	what := fcSnapshot{Type: "Full", Devices: filepath.Join(boxSockets, fcDevices), Memory: boxMemory}
	err = m.api.callWithin(ctx, m.writeTime(), http.MethodPut, "/snapshot/create", what, nil)
	if errors.Is(err, errSilent) {
		err = fmt.Errorf("%w: %w", errStalled, err)
	}
	if err != nil {
		return nil, err
	}
	if err := m.copyMemory(ctx, w); err != nil {
		return nil, err
	}
	return m.readDevices()
}

// writeTime is how long Firecracker may take to write its machine to a slow disk.
func (m *firecrackerMonitor) writeTime() time.Duration {
	return stallTimeout + time.Duration(m.machine.memory<<20/slowLoad)*time.Second
}

// hangUp ends the connection to the first process: nothing is on its way when there is no order.
func (m *firecrackerMonitor) hangUp() {
	m.cut = true
	m.orders.Part()
	m.orders.Cut()
}

// errLost is of a connection to the agent that was ended while something may have been on its
// way: the session on it does not go on.
var errLost = errors.New("the connection to the agent was cut")

// part has nothing be on its way to or from the agent, and hangs up: errLost where there may
// be. The connection that there was is of no more use, whatever became of it.
func (m *firecrackerMonitor) part(ctx context.Context, o *orders) error {
	ctx, cancel := context.WithTimeoutCause(ctx, orderTimeout, errOrderTimeout)
	defer cancel()
	err := m.settle(ctx, o)
	if err != nil {
		err = fmt.Errorf("%w: %w", errLost, err)
	}
	m.parted = true
	m.agent.Cut()
	return err
}

// settle waits until what was sent to the agent and by it has come. Neither sends more.
func (m *firecrackerMonitor) settle(ctx context.Context, o *orders) error {
	m.agent.Part()
	held, err := o.ask(ctx, boot.Order{Do: boot.Hold})
	if err != nil {
		return err
	}
	if err := m.agent.Await(ctx, held.Sent); err != nil {
		return err
	}
	sent, err := m.agent.Sent(ctx)
	if err != nil {
		return err
	}
	return o.give(ctx, boot.Order{Do: boot.Leave, Sent: sent})
}

// copyMemory copies what was written.
func (m *firecrackerMonitor) copyMemory(ctx context.Context, w io.Writer) error {
	size := m.machine.memory << 20
	n, err := io.Copy(w, &until{ctx, io.NewSectionReader(m.memory, 0, size)})
	if err == nil && n != size {
		err = errors.New("not all of the machine's memory was written by Firecracker")
	}
	return err
}

// empty frees the room of what was written, be it half.
func (m *firecrackerMonitor) empty() error {
	return errors.Join(m.memory.Truncate(0), m.memory.Truncate(m.machine.memory<<20))
}

// readDevices reads what was written beside the memory: a file of Firecracker's own directory,
// and nothing else that it may have put there.
func (m *firecrackerMonitor) readDevices() ([]byte, error) {
	fd, err := unix.Openat(int(m.dir.Fd()), fcDevices, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("what Firecracker has written of its machine: %w", err)
	}
	f := os.NewFile(uintptr(fd), fcDevices)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	limit := devicesSize(m.machine.processors)
	if !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > limit {
		return nil, fmt.Errorf("what Firecracker has written of its machine is no file of at most %d bytes", limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// load has Firecracker map the memory that it is shown, copy-on-write: machines that go on from
// one snapshot share what they do not change. It does so once that was read and found whole.
func (m *firecrackerMonitor) load(ctx context.Context, r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	ctx, cancel := m.alive(ctx)
	defer cancel()
	what := fcLoad{Devices: boxDevices, Memory: fcMemory{Type: "File", Path: boxWritten}}
	err := m.api.put(ctx, "/snapshot/load", what)
	var refused *refusal
	if errors.As(err, &refused) && refused.forGood() {
		return fmt.Errorf("%w: %w", errRefused, err)
	} else if refused != nil {
		return err
	}
	m.parted, m.cut = true, true
	rate := rateOf(m.machine) // the other machine had its own
	for _, d := range m.machine.disks {
		if err == nil {
			err = m.api.call(ctx, http.MethodPatch, "/drives/"+d.serial, fcDriveRate{ID: d.serial, Rate: rate}, nil)
		}
	}
	return err
}

// What Firecracker (1.14 to 1.16) says of a machine that it does not read, or that this host's
// KVM does not take: its state file, what is in there, its processors, its clock.
var fcUnfit = []string{
	"Failed to load snapshot state from file: ", "Invalid snapshot state: ", "Failed to restore microVM state: ",
	"Failed to restore vCPUs: ", "TSC scaling within the snapshot", "frequency not present in the given snapshot",
}

// forGood says whether a machine that was refused will be again: that is told by what it was
// refused for, with no error of the host's kernel but EINVAL. All else may pass, as ENOMEM.
func (r *refusal) forGood() bool {
	host := strings.Contains(strings.ReplaceAll(r.fault, "(os error 22)", ""), "(os error ") || strings.Contains(r.fault, "IO Error: ")
	return !host && slices.ContainsFunc(fcUnfit, func(s string) bool { return strings.Contains(r.fault, s) })
}
