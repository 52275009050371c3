// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// stateName is what QEMU calls the end of a pipe that it is given. It can neither make a
// file nor open one that is not shown to it.
const stateName = "state"

// noBound is how many bytes QEMU may write in a second: it takes 128 MiB for the most
// otherwise, since its owner might be far away.
const noBound = 1 << 50

// save has QEMU write a machine down that stands still, devices included, and copies what it
// writes to w.
func (m *qemuMonitor) save(ctx context.Context, _ *orders, w io.Writer) ([]byte, error) {
	return nil, m.write(ctx, w)
}

func (m *qemuMonitor) write(ctx context.Context, w io.Writer) error {
	if m.saved { // it is written down again only after it has run: nothing inside does
		if err := errors.Join(m.resume(ctx), m.pause(ctx)); err != nil {
			return err
		}
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ours.Close()
	err = m.give(ctx, theirs)
	if err == nil {
		_, err = m.qmp.ask(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": int64(noBound)}, nil)
	}
	if err == nil {
		m.saved = true
		_, err = m.qmp.ask(ctx, "migrate", map[string]any{"uri": "fd:" + stateName}, nil)
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = ours.SetReadDeadline(time.Unix(1, 0)) })
	_, err = io.Copy(w, &waiting{f: ours, ctx: ctx, once: m.stall, left: m.stall + saveTime})
	ours.Close()
	if !stop() {
		err = context.Cause(ctx)
	}
	if errors.Is(err, errStalled) { // it is not asked what became of it
		return err
	}
	// What is not read any more QEMU cannot write: it gives up by itself.
	return errors.Join(err, ignored(err, m.migrated(context.WithoutCancel(ctx))))
}

const (
	// stallTimeout is how long QEMU may write nothing of a machine that it writes down.
	stallTimeout = time.Minute
	// saveTime is how long it may be waited for in all: it writes faster than any disk, so
	// that is minutes for gigabytes even where its processor is shared by many.
	saveTime = 20 * time.Minute
)

var errStalled = errors.New("the machine monitor does not write its machine down")

// waiting reads a pipe whose other end may be in hostile hands. What is done with the bytes
// between reads takes none of its time.
type waiting struct {
	f    *os.File
	ctx  context.Context
	once time.Duration // for one read
	left time.Duration // for all of them
}

// Read implements io.Reader.
func (r *waiting) Read(p []byte) (int, error) {
	began := time.Now()
	if err := r.f.SetReadDeadline(began.Add(min(r.once, r.left))); err != nil {
		return 0, err
	}
	if r.ctx.Err() != nil { // its deadline was overwritten
		return 0, context.Cause(r.ctx)
	}
	n, err := r.f.Read(p)
	r.left -= time.Since(began)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errStalled
	}
	return n, err
}

// ignored is what an error has led to: it tells nothing more.
func ignored(first, second error) error {
	if first != nil {
		return nil
	}
	return second
}

// errRefused is of what a monitor itself does not go on with.
var errRefused = errors.New("the machine monitor gave it up")

// source is a reader that notes why it failed.
type source struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// load has QEMU read a machine from r, which stands still then. errRefused, or the end of
// QEMU, where it does not take it.
func (m *qemuMonitor) load(ctx context.Context, r io.Reader) error {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ours.Close()
	err = m.give(ctx, theirs)
	if err == nil {
		_, err = m.qmp.ask(ctx, "migrate-incoming", map[string]any{"uri": "fd:" + stateName}, nil)
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = ours.SetWriteDeadline(time.Unix(1, 0)) })
	from := &source{Reader: r}
	_, err = io.Copy(ours, from)
	ours.Close()
	if !stop() {
		return context.Cause(ctx)
	}
	if from.err != nil { // of the host's: QEMU has had half of it
		return from.err
	}
	if err := m.migrated(ctx); err != nil { // why it reads no further
		return err
	}
	return err
}

// give gives QEMU its end of a pipe, which caisson has no more.
func (m *qemuMonitor) give(ctx context.Context, theirs *os.File) error {
	defer theirs.Close()
	_, err := m.qmp.ask(ctx, "getfd", map[string]any{"fdname": stateName}, theirs)
	return err
}

const (
	migratePause = 5 * time.Millisecond
	migrateWait  = 2 * time.Minute // once the stream has ended
)

// migrated waits until QEMU is through with a stream.
func (m *qemuMonitor) migrated(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, migrateWait, errors.New("QEMU does not come to an end"))
	defer cancel()
	tick := time.NewTicker(migratePause)
	defer tick.Stop()
	for {
		b, err := m.qmp.ask(ctx, "query-migrate", nil, nil)
		if err != nil {
			return err
		}
		var now struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := json.Unmarshal(b, &now); err != nil {
			return errors.New("QEMU answers nonsense")
		}
		switch now.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("%w: it says %s", errRefused, said(now.Status+": "+now.Error))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
