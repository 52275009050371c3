// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// bootTimeout is how long a machine may take until its agent begins: an emulated
// processor on a busy host was seen to take 20 seconds.
const bootTimeout = 3 * time.Minute

// Start boots a machine and returns when its agent begins.
func (d *Driver) Start(ctx context.Context, s *sandbox.Spec) (sandbox.Instance, error) {
	return d.start(ctx, s, nil)
}

// start makes a machine that begins, or that goes on from what was written down of it.
func (d *Driver) start(ctx context.Context, s *sandbox.Spec, from *written) (_ sandbox.Instance, err error) {
	if err := d.check(s); err != nil {
		return nil, err
	}
	if why, remedy := d.unusable(ctx); why != "" {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: why, Hint: remedy}
	}
	if s.Limits.Memory == 0 {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "a virtual machine has a size", Hint: "set a limit of memory"}
	}
	i := &instance{id: s.ID, limits: s.Limits, layered: layered(s), console: newConsole(), emulated: d.opts.Emulated, ended: make(chan struct{})}
	i.mark = wire.NewMark()
	if from.remembers() {
		i.mark, _ = wire.ParseMark(from.Mark)
	}
	what, room := config(s, i.mark)
	if from != nil { // it has its disk: what is free on the host's by now is nothing to it
		err = room.as(from.Parts)
	} else {
		err = room.divide(s.StateDir)
	}
	if err != nil {
		return nil, err
	}
	i.parts = room.parts()
	if err := os.Mkdir(socketDir(s.StateDir), 0o700); err != nil {
		return nil, unkept(err)
	}
	defer func() {
		if err != nil { // it may be begun anew, with the files alone
			err = errors.Join(err, leaveNothing(s.StateDir))
		}
	}()
	if i.monitor, err = d.vmm.prepare(socketDir(s.StateDir), s, i.console); err != nil {
		return nil, err
	}
	if i.box, err = d.startBox(ctx, s, i.monitor, room, from); err != nil {
		i.monitor.close()
		return nil, err
	}
	defer func() {
		if err != nil {
			err = i.failed(err)
			i.box.stop()
			<-i.box.ended
			i.monitor.close()
		}
	}()
	booting, cancel := from.within(ctx)
	defer cancel()
	if err := i.monitor.connect(booting, i.box.ended); err != nil {
		return nil, err
	}
	i.orders = newOrders(i.monitor.control())
	if from.remembers() {
		err = i.goOnFrom(booting, from, s)
	} else {
		err = i.begin(booting, what)
	}
	if err != nil {
		return nil, err
	}
	i.opener = wire.NewOpener(i.monitor.channel(), i.mark)
	i.base = i.box.now()
	go i.follow()
	return i, nil
}

// leaveNothing removes what a machine had in its state directory.
func leaveNothing(stateDir string) error {
	var errs []error
	for _, name := range []string{socketDir(stateDir), filepath.Join(stateDir, copiesSerial), filepath.Join(stateDir, scratchSerial), filepath.Join(stateDir, fcMemoryFile)} {
		errs = append(errs, os.RemoveAll(name))
	}
	return errors.Join(errs...)
}

// slowLoad is what the slowest host reads of memory in a second, in bytes: its disk is used
// by others, and each byte is summed up.
const slowLoad = 4 << 20

// within bounds how long a machine may take to begin, or to go on.
func (w *written) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if !w.remembers() {
		return context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("it did not boot within %v", bootTimeout))
	}
	wait := bootTimeout + time.Duration(w.Size/slowLoad)*time.Second
	return context.WithTimeoutCause(ctx, wait, fmt.Errorf("it did not go on within %v", wait))
}

// begin has the machine become the sandbox. What time it is is said again when its agent
// begins, and nothing else has: the machine was told before it booted.
func (i *instance) begin(ctx context.Context, c *boot.Config) error {
	if err := i.configure(ctx, c); err != nil {
		return err
	}
	return i.orders.give(ctx, boot.Order{Do: boot.Resume, Time: time.Now().UnixNano()})
}

// configure tells the machine what it is to be, and waits until its agent begins.
func (i *instance) configure(ctx context.Context, c *boot.Config) error {
	c.Time = time.Now().UnixNano()
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	channel := i.monitor.channel()
	stop := context.AfterFunc(ctx, func() { _ = channel.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-i.box.ended:
			_ = channel.SetDeadline(time.Unix(1, 0))
		case <-ended:
		}
	}()
	if _, err := channel.Write(append(b, '\n')); err != nil {
		return i.why(ctx, err)
	}
	line, err := readLine(channel)
	if err != nil {
		return i.why(ctx, err)
	}
	var a boot.Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return errors.New("the guest answers nonsense")
	}
	if a.Error != "" {
		return errors.New("the guest says: " + said(a.Error))
	}
	if !stop() {
		return context.Cause(ctx)
	}
	return nil
}

// why is why a wait for the guest ended.
func (i *instance) why(ctx context.Context, err error) error {
	select {
	case <-i.box.ended:
		return errMonitorGone
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// maxAnswer is in bytes.
const maxAnswer = 64 << 10

// readLine reads no further than a line's end: what follows is the agent's.
func readLine(r io.Reader) ([]byte, error) {
	var line []byte
	var one [1]byte
	for len(line) < maxAnswer {
		n, err := r.Read(one[:])
		if n == 1 && one[0] == '\n' {
			return line, nil
		}
		line = append(line, one[:n]...)
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the guest's answer is too long")
}

// failed is why a machine did not start, with what its monitor or its console says.
func (i *instance) failed(err error) error {
	e := &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the virtual machine did not start: " + err.Error(), Cause: err}
	if errors.Is(err, errMonitorGone) {
		i.box.stop()
		<-i.box.ended
		e.Problem = "the virtual machine did not start: " + i.box.why()
		if i.box.clean() {
			e.Problem = "the virtual machine ended before its agent began"
		}
	}
	if said := i.console.lastLines(8); said != "" {
		e.Problem += "; its console ends with\n" + said
		if strings.Contains(said, "no port "+boot.Port) {
			e.Hint = "its kernel lacks drivers, as modules say: caisson vm kernel ls shows which is used; caisson vm kernel import FILE --modules DIR"
		}
	}
	return e
}
