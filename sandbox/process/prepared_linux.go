// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"sync"
	"time"

	"github.com/caisson-run/caisson/internal/linux/stdio"
	"github.com/caisson-run/caisson/sandbox"
)

// prepared is a sandbox whose program sleeps before its first instruction. It
// was made by the very steps that a one-shot is made by, and shares with no
// other sandbox what a one-shot would not.
type prepared struct {
	box     *box
	late    *late
	streams *stdio.Pipes
	started <-chan error // once it was woken, or has died
	ended   <-chan ending

	use  sync.Mutex // held while Run runs
	used bool       // or destroyed
}

var (
	_ sandbox.Preparer = (*Driver)(nil)
	_ sandbox.Prepared = (*prepared)(nil)
)

// Prepare makes the sandbox of a one-shot up to its program.
func (d *Driver) Prepare(ctx context.Context, spec *sandbox.Spec) (sandbox.Prepared, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	l, err := newLate()
	if err != nil {
		return nil, err
	}
	defer l.ready.Close()
	streams, err := stdio.New()
	if err != nil {
		return nil, err
	}
	b, err := d.newBox(spec, first{stdio: streams.Theirs, late: l})
	if err != nil {
		streams.Close()
		return nil, err
	}
	p := &prepared{box: b, late: l, streams: streams}
	p.started, p.ended = b.live()
	if !l.wait() {
		err := <-p.started
		b.close()
		streams.Close()
		return nil, err
	}
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

// Beside says that a sandbox costs what a one-shot's does when it is made before its
// program is known.
func (d *Driver) Beside() {}

func (p *prepared) ID() string { return p.box.spec.ID }

func (p *prepared) Ended() <-chan struct{} { return p.box.gone }

// Usage is what making it took, and what it holds, where a control group counts
// that.
func (p *prepared) Usage(context.Context) (sandbox.Usage, error) {
	return p.box.base, nil // nothing has run since
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
	if err := <-p.started; err != nil {
		return nil, err
	}
	return p.box.serve(ctx, exec, p.streams, broken, p.ended), nil
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

// Destroy ends everything inside and waits until nothing of it is left.
func (p *prepared) Destroy(context.Context) error {
	p.box.kill()
	p.use.Lock() // a Run that is under way ends by that
	defer p.use.Unlock()
	p.used = true
	p.box.close()
	p.streams.Close()
	return nil
}
