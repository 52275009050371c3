// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"sync"
	"time"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/internal/linux/stdio"
	"github.com/caisson-run/caisson/sandbox"
)

// prepared is a sandbox whose program sleeps before its first instruction. It
// was made by the very steps that a one-shot is made by, and shares with no
// other sandbox what a one-shot would not.
type prepared struct {
	box     *box
	driver  *Driver
	late    *late
	streams *stdio.Pipes
	started <-chan error // once it was woken, or has died
	ended   <-chan ending

	use  sync.Mutex // held while Run runs
	used bool       // or destroyed
}

var (
	_ sandbox.Preparer  = (*Driver)(nil)
	_ sandbox.Prepared  = (*prepared)(nil)
	_ sandbox.Tightener = (*prepared)(nil)
)

// Prepare makes the sandbox of a one-shot up to its program.
func (d *Driver) Prepare(ctx context.Context, spec *sandbox.Spec) (sandbox.Prepared, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if spec.OnChanges != nil {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "prepare sandbox", "one made ahead tells no changes")
	}
	l, err := newLate()
	if err != nil {
		return nil, err
	}
	streams, err := stdio.New()
	if err != nil {
		l.close()
		return nil, err
	}
	b, err := d.newBox(spec, first{stdio: streams.Theirs, late: l})
	if err != nil {
		l.close()
		streams.Close()
		return nil, err
	}
	p := &prepared{box: b, driver: d, late: l, streams: streams}
	p.started, p.ended = b.live()
	if !l.wait() {
		err := <-p.started
		_ = b.close() // that says why, or the same
		l.close()
		streams.Close()
		return nil, err
	}
	l.ready.Close()
	l.owner.Close()
	b.parked()
	streams.Release()
	return p, nil
}

// parked is called once the program sleeps.
func (b *box) parked() {
	keepDumpable()
	b.closeFiles()
	if b.group != nil {
		b.base = b.group.Usage()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.init = int(b.launch.init.pid)
	}
}

func (p *prepared) ID() string { return p.box.spec.ID }

func (p *prepared) Ended() <-chan struct{} { return p.box.gone }

// Usage is what making it took, and what it holds, where a control group counts
// that.
func (p *prepared) Usage(context.Context) (sandbox.Usage, error) {
	return p.box.base, nil // nothing has run since
}

// Tighten sets the limits of the control group anew, with nothing in it yet but
// what waits. The rlimit for processes stays where it was, behind the group's.
func (p *prepared) Tighten(l sandbox.Limits) error {
	p.use.Lock()
	defer p.use.Unlock()
	if p.used {
		return sandbox.Errorf(sandbox.ErrConflict, "limit sandbox", "the sandbox has run its program")
	}
	if err := l.Check(p.driver.limits()); err != nil {
		return err
	}
	spec := *p.box.spec
	if !l.Within(&spec.Limits) {
		return sandbox.Errorf(sandbox.ErrInvalid, "limit sandbox", "a limit is looser than the sandbox was made with")
	}
	spec.Limits.Memory, spec.Limits.CPUs, spec.Limits.Processes = l.Memory, l.CPUs, l.Processes
	host, group := p.driver.host(), p.box.group
	if host == nil || group == nil {
		return &sandbox.Error{Op: "limit sandbox", Kind: sandbox.ErrUnsupported, Problem: "it has no control group, and is bounded as it was made",
			Hint: "see what caisson doctor says about control groups"}
	}
	for _, need := range []struct {
		controller string
		changes    bool
	}{
		{cgroup.Memory, l.Memory != p.box.spec.Limits.Memory}, {cgroup.CPU, l.CPUs != p.box.spec.Limits.CPUs},
		{cgroup.Pids, l.Processes != p.box.spec.Limits.Processes},
	} {
		if ok, why := host.Can(need.controller); need.changes && !ok {
			return sandbox.Errorf(sandbox.ErrUnsupported, "limit sandbox", "%s cannot be bounded anew: %s", need.controller, why)
		}
	}
	want, err := host.LimitsOf(&spec.Limits, initShare, spec.StateDir)
	if err == nil {
		err = group.Tighten(want)
	}
	if err != nil {
		return err
	}
	p.box.mu.Lock()
	defer p.box.mu.Unlock()
	p.box.spec = &spec
	return nil
}

// Run wakes the program. It returns when nothing that ran is left; init may
// still be ending then, and Destroy waits for it.
func (p *prepared) Run(ctx context.Context, exec *sandbox.Exec) (*sandbox.Result, error) {
	if err := runnable(exec); err != nil {
		return nil, err
	}
	f := first{argv: exec.Argv, env: exec.Env, dir: exec.Dir, stdio: p.box.plan.first.stdio, late: p.late}
	if err := checkTexts(f); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	p.use.Lock()
	defer p.use.Unlock()
	if p.used {
		return nil, sandbox.Errorf(sandbox.ErrConflict, "run", "the sandbox has run its program")
	}
	p.used = true
	broken := p.streams.Copy(exec)
	p.box.run(f)
	if err := p.box.awaitStart(ctx, p.started); err != nil {
		return nil, err
	}
	return p.box.serve(ctx, exec, p.streams, broken, p.ended)
}

// run tells the sleeping program what to run. The lock orders this with what
// the thread does that waits for the program.
func (b *box) run(f first) {
	b.mu.Lock()
	b.plan.first = f
	b.launch.command(f)
	b.began = time.Now()
	b.mu.Unlock()
	f.late.wake()
}

// Destroy ends everything inside and waits until nothing of it is left, for endLimit.
func (p *prepared) Destroy(context.Context) error {
	p.box.kill()
	p.use.Lock() // a Run that is under way ends by that
	defer p.use.Unlock()
	p.used = true
	err := p.box.close()
	p.late.close()
	p.streams.Close()
	return err
}
