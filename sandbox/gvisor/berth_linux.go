// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"context"
	"errors"
	"reflect"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// berth is where a sandbox will be: its control group, and in it a shim that
// waits for its order. It needs nothing of the host's objects and runs nothing
// but our own code, so it can be made while the rest is still being decided on,
// looked for and recorded.
type berth struct {
	group      *cgroup.Group // nil without one
	memoryHeld bool          // group bounds memory
	shim       *shimProcess
}

// early is a berth that is being made.
type early struct {
	stateDir string
	limits   sandbox.Limits
	done     chan struct{} // closed when the rest is set
	berth    *berth
	err      error
}

var _ sandbox.EarlyStarter = (*Driver)(nil)

// Early implements sandbox.EarlyStarter.
func (d *Driver) Early(id, stateDir string, limits sandbox.Limits) (release func()) {
	if builtWithCgo || limits.Check(d.limits()) != nil {
		return func() {}
	}
	e := &early{stateDir: stateDir, limits: limits, done: make(chan struct{})}
	d.mu.Lock()
	if d.early == nil {
		d.early = make(map[string]*early)
	}
	d.early[id] = e
	d.mu.Unlock()
	go func() {
		defer close(e.done)
		e.berth, e.err = d.makeBerth(id, stateDir, &limits)
	}()
	return func() {
		if e := d.takeEarly(id); e != nil {
			<-e.done
			_ = e.berth.close() // nothing ran in it; what stays is swept
		}
	}
}

// begin is Early for who is asked for a sandbox that was not begun: the rest of it is
// prepared beside.
func (d *Driver) begin(spec *sandbox.Spec) (release func()) {
	d.mu.Lock()
	begun := d.early[spec.ID] != nil
	d.mu.Unlock()
	if begun {
		return func() {}
	}
	return d.Early(spec.ID, spec.StateDir, spec.Limits)
}

func (d *Driver) takeEarly(id string) *early {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.early[id]
	delete(d.early, id)
	return e
}

// berth returns the one that was begun early, or makes one.
func (d *Driver) berth(id, stateDir string, limits *sandbox.Limits) (*berth, error) {
	e := d.takeEarly(id)
	if e == nil {
		return d.makeBerth(id, stateDir, limits)
	}
	<-e.done
	if e.err == nil && e.stateDir == stateDir && reflect.DeepEqual(e.limits, *limits) {
		return e.berth, nil
	}
	_ = e.berth.close() // nothing ran in it; what stays is swept
	return d.makeBerth(id, stateDir, limits)
}

func (d *Driver) makeBerth(id, stateDir string, limits *sandbox.Limits) (*berth, error) {
	b := &berth{}
	err := b.makeGroup(d.host(), id, stateDir, limits)
	if err == nil {
		b.shim, err = startShim(stateDir, b.group)
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// grouped says whether sandboxes have control groups of their own.
func grouped(host *cgroup.Host) bool { return host != nil && host.Why == "" }

// makeGroup makes the control group that holds memory, processors, tasks and
// block I/O, as far as this host lets us.
func (b *berth) makeGroup(host *cgroup.Host, id, stateDir string, limits *sandbox.Limits) error {
	if !grouped(host) {
		return nil
	}
	want, err := host.LimitsOf(limits, hostShare(limits), stateDir)
	if err != nil {
		return err
	}
	g, err := host.Create(cgroup.NameOf(id, stateDir), want)
	if err != nil {
		return &sandbox.Error{
			Op: "limit sandbox", Kind: sandbox.ErrUnavailable, Problem: "its control group cannot be made", Cause: err,
			Hint: "see what caisson doctor says about control groups",
		}
	}
	b.group, b.memoryHeld = g, want.Memory > 0
	return nil
}

// close ends what is left of it. It may be called twice, and of none. What does not
// end in time is an error, and left to the next sweep.
func (b *berth) close() error {
	if b == nil {
		return nil
	}
	var errs []error
	if b.shim != nil {
		errs = append(errs, b.shim.end())
	}
	if b.group != nil {
		ctx := context.Background() // without a deadline each waits 5 s
		if err := b.group.Kill(ctx); err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, b.group.Remove(ctx))
		}
		b.group = nil
	}
	return errors.Join(errs...)
}
