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

func newBeside(t *testing.T, change func(*Options)) (*bench, *beside) {
	t.Helper()
	d := &beside{preparer{made: map[string]*preparedStub{}, begun: make(chan struct{}, 10)}}
	return newBench(t, &d.stub, func(o *Options) {
		o.Drivers["gvisor"] = d
		if change != nil {
			change(o)
		}
	}), d
}

// slowJournal writes an intent when a sandbox has been made, or could not be.
type slowJournal struct {
	Journal
	d     *beside
	fails bool
}

func (j slowJournal) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	<-j.d.begun
	if j.d.hasRun() {
		return nil, errors.New("it has run before it was recorded")
	}
	if j.fails {
		return nil, errors.New("no space left")
	}
	return j.Journal.Begin(ctx, in)
}

func (d *beside) hasRun() bool {
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
	for _, fails := range []bool{false, true} {
		var j *slowJournal
		b, d := newBeside(t, func(o *Options) {
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
	b, d := newBeside(t, nil)
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
