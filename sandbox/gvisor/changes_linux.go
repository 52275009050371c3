// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// changesAnnotation tells package sentry whose layers are asked for. It and its value are
// repeated here so that this package need not link gVisor.
const changesAnnotation = "dev.caisson.changes"

// changes are sentry.Changes.
type changes struct {
	Targets []string `json:"targets"`
	Covered []string `json:"covered,omitempty"`
	AtEnd   bool     `json:"at_end,omitempty"`
}

// wantChanges puts into the plan whose layers are asked for, and makes pipes for those
// that are at the end. nil is none.
func (b *box) wantChanges(f first) (*protocol.Changes, error) {
	if !f.agent && b.spec.OnChanges == nil {
		return nil, nil
	}
	c := changes{AtEnd: !f.agent}
	for _, m := range b.spec.Mounts {
		if m.Access != sandbox.CopyOnWrite || !m.Dir || slices.Contains(c.Targets, m.Target) {
			continue
		}
		c.Targets = append(c.Targets, m.Target)
		if slices.ContainsFunc(b.plan.oci.Mounts, func(o ociMount) bool { return o.Destination != m.Target && sandbox.Within(o.Destination, m.Target) }) {
			c.Covered = append(c.Covered, m.Target)
		}
	}
	if b.spec.Sudo && b.spec.RootChanges {
		c.Targets, c.Covered = append(c.Targets, "/"), append(c.Covered, "/")
	}
	if len(c.Targets) == 0 {
		return nil, nil
	}
	said, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	b.plan.oci.Annotations[changesAnnotation] = string(said)
	o := &protocol.Changes{}
	if f.agent {
		return o, nil
	}
	for _, target := range c.Targets {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		b.opened = append(b.opened, r, w)
		b.layers.all = append(b.layers.all, layer{target: target, read: r, write: w})
		o.Layers = append(o.Layers, protocol.Layer{Target: target})
	}
	return o, nil
}

// layers are those that are written at the end.
type layers struct {
	all []layer

	mu      sync.Mutex
	reading *os.File  // the one that is read, until it was
	pressed time.Time // when the kernel was told to hurry; zero before
	until   time.Time // and when it is over whatever comes, because the run was ended; zero: not
	got     int64     // bytes of all that were read
	late    bool
}

type layer struct {
	target      string
	read, write *os.File // a pipe, whose other end is the kernel's alone
}

// stopGrace is how long programs may take to end when they are killed, and layers to be
// written from then on; those of a run that ended by itself have a second more for each
// slowestRate bytes. Who has ended a run does not wait for ever (session.DefaultEndLimit).
var stopGrace = 24 * time.Second

const slowestRate = 1 << 20

// stop ends what runs inside. Where the layers are wanted the kernel stays until it has
// written them.
func (b *box) stop() {
	if len(b.layers.all) == 0 {
		b.shim.kill()
		return
	}
	b.layers.press(time.Now().Add(stopGrace))
	_ = b.shim.command(protocol.Command{Kind: protocol.Stop})
}

// press begins the time in which they have to be written, until it ends where it is not
// zero.
func (l *layers) press(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pressed.IsZero() {
		l.pressed = time.Now()
	}
	if l.until.IsZero() {
		l.until = until
	}
	l.setDeadline()
}

// setDeadline is for who holds mu.
func (l *layers) setDeadline() {
	if l.pressed.IsZero() || l.reading == nil {
		return
	}
	at := l.pressed.Add(stopGrace + time.Duration(l.got/slowestRate)*time.Second)
	if !l.until.IsZero() && l.until.Before(at) {
		at = l.until
	}
	_ = l.reading.SetReadDeadline(at)
}

// begin reads another one from now on.
func (l *layers) begin(f *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = f
	l.setDeadline()
}

// Read implements io.Reader, of the one that is read.
func (l *layers) Read(p []byte) (int, error) {
	n, err := l.reading.Read(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got += int64(n)
	l.late = l.late || errors.Is(err, os.ErrDeadlineExceeded)
	l.setDeadline()
	return n, err
}

func (l *layers) isLate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late
}

// tellChanges gives the layers to who wants them, one after the other as the kernel writes
// them, until told is closed. What could not be read is not told, and a kernel that is
// too slow is killed.
func (b *box) tellChanges() (told <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, l := range b.layers.all {
			b.layers.begin(l.read)
			r := bufio.NewReaderSize(&b.layers, 64<<10)
			if _, err := r.Peek(1); err == nil {
				_ = b.spec.OnChanges(l.target, r) // which has its error
			}
			l.read.Close()
			if b.layers.isLate() {
				b.shim.kill()
			}
		}
	}()
	return done
}

var _ sandbox.ChangeReader = (*instance)(nil)

// ReadChanges has gVisor's kernel write the layer, while programs stand still.
func (i *instance) ReadChanges(ctx context.Context, target string, w io.Writer) error {
	select {
	case i.reading <- struct{}{}: // the reader of the answer takes it out
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	answer := i.expectLayer()
	copied := i.copyLayer(ctx, target, w)
	select {
	case ev := <-answer:
		<-i.reading
		return cmp.Or(context.Cause(ctx), i.layerError(ev, target), copied)
	case <-ctx.Done():
		go func() { <-answer; <-i.reading }()
		return context.Cause(ctx)
	}
}

// expectLayer gets the answer to a command, nil when the sandbox ends before it.
func (i *instance) expectLayer() <-chan *protocol.Event {
	answer := make(chan *protocol.Event, 1)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		answer <- nil
	} else {
		i.read = answer
	}
	return answer
}

// copyLayer gives the command, and copies what the kernel writes.
func (i *instance) copyLayer(ctx context.Context, target string, w io.Writer) error {
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	defer from.Close() // a kernel that goes on writing learns that there is no reader
	defer context.AfterFunc(ctx, func() { from.Close() })()
	_ = i.box.shim.commandWith(protocol.Command{Kind: protocol.ReadLayer, Target: target}, to)
	to.Close()
	_, err = io.Copy(w, from)
	return err
}

// layerError is what came of a layer: the shim's answer, or the sandbox's end before it.
func (i *instance) layerError(ev *protocol.Event, target string) error {
	switch {
	case ev == nil || ev.Kind != protocol.Read:
		i.mu.Lock()
		defer i.mu.Unlock()
		return i.err
	case ev.NoLayer:
		return sandbox.Errorf(sandbox.ErrInvalid, "read changes", "no directory is mounted copy-on-write at %s", target)
	case ev.Error != "":
		return sandbox.Errorf(sandbox.ErrUnavailable, "read changes", "gVisor cannot write the layer of %s: %s", target, ev.Error)
	}
	return nil
}
