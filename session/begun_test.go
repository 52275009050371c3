// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"testing"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// beside is a stub that makes the sandboxes of one-shots beside the record.
type beside struct{ preparer }

func (*beside) Beside() {}

// holder is one that makes them with their programs, which it holds.
type holder struct{ preparer }

func (d *holder) Hold(ctx context.Context, spec *sandbox.Spec, exec *sandbox.Exec) (sandbox.Held, error) {
	if len(exec.Argv) == 0 {
		return nil, errors.New("it is held without its program")
	}
	return d.Prepare(ctx, spec)
}

func newBeside(t *testing.T, holds bool, change func(*Options)) (*bench, *preparer) {
	t.Helper()
	b, h := &beside{}, &holder{}
	var level sandbox.Driver = b
	d := &b.preparer
	if holds {
		level, d = h, &h.preparer
	}
	d.made, d.begun = map[string]*preparedStub{}, make(chan struct{}, 10)
	return newBench(t, &d.stub, func(o *Options) {
		o.Drivers["gvisor"] = level
		if change != nil {
			change(o)
		}
	}), d
}

// slowJournal writes an intent when a sandbox has been made, or could not be.
type slowJournal struct {
	Journal
	d     *preparer
	fails bool
	told  bool // that a record will be wanted
}

func (j *slowJournal) Soon() { j.told = true }

func (j slowJournal) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	<-j.d.begun
	if !j.told {
		return nil, errors.New("it was not told to get ready")
	}
	if j.d.hasRun() {
		return nil, errors.New("it has run before it was recorded")
	}
	if j.fails {
		return nil, errors.New("no space left")
	}
	return j.Journal.Begin(ctx, in)
}

func (d *preparer) hasRun() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.made {
		if m.ran > 0 {
			return true
		}
	}
	return false
}

// A one-shot's sandbox is made while its intent is written; its program runs
// afterwards, or never, and nothing is left.
func TestMadeBesideTheRecord(t *testing.T) {
	for i := range 4 {
		fails, holds := i%2 == 1, i >= 2
		var j *slowJournal
		b, d := newBeside(t, holds, func(o *Options) {
			j = &slowJournal{Journal: o.Journal, fails: fails}
			o.Journal = j
		})
		j.d = d
		// With a network, too: its router is not there before the first packet.
		d.caps = func(c *sandbox.Capabilities) { c.Network, c.Wire = true, sandbox.WirePackets }
		res, err := b.Do(t.Context(), like(func(c *Call) { c.Network = []string{"example.com"} }), IO{})
		if (err != nil) != fails || !fails && res.Status != sandbox.StatusSuccess {
			t.Errorf("%+v, %v", res, err)
		}
		if len(d.made) != 1 || d.stub.ran != 0 {
			t.Errorf("%d were made, %d ran otherwise", len(d.made), d.stub.ran)
		}
		for _, m := range d.made {
			if m.ran == 0 != fails || !m.destroyed {
				t.Errorf("it ran %d times, destroyed: %v", m.ran, m.destroyed)
			}
		}
		b.clean(t)
	}
}

// What cannot be made is the call's end, and recorded; where the agent is needed
// nothing is made beside.
func TestNotMadeBeside(t *testing.T) {
	b, d := newBeside(t, false, nil)
	d.fails = sandbox.Errorf(sandbox.ErrUnavailable, "start sandbox", "no more")
	if _, err := b.Do(t.Context(), like(nil), IO{}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Error(err)
	}
	if last := b.last(t); last.Status != audit.Failed {
		t.Errorf("%+v", last)
	}
	<-d.begun
	d.fails = nil
	_, _ = b.Do(t.Context(), like(func(c *Call) { c.Collect = []policy.CollectWish{{Pattern: "out/*", Dest: t.TempDir()}} }), IO{})
	if len(d.made) > 0 {
		t.Error("one was made for a call that needs the agent")
	}
	b.clean(t)
}
