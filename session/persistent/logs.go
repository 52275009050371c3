// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Log is one program of a sandbox that has ended, and the beginning of what it
// wrote.
type Log struct {
	Seq    int64 // grows by 1
	At     time.Time
	Argv   []string
	Status sandbox.Status // empty where it could not be run; Reason says why then
	// ExitCode is nil when a signal ended it.
	ExitCode       *int
	Signal         string
	Reason         string
	Stdout, Stderr []byte
}

const (
	// maxLog is how many bytes of programs are kept of each sandbox, maxLogStream
	// how many of one stream.
	maxLog       = 256 << 10
	maxLogStream = 16 << 10
)

// logbook keeps the last programs of one sandbox, in memory while it lives.
type logbook struct {
	mu    sync.Mutex
	seq   int64
	size  int
	kept  []Log
	fresh chan struct{} // closed with the next one; nil while no caller waits
}

func (l *Log) size() int {
	n := 128 + len(l.Reason) + len(l.Stdout) + len(l.Stderr)
	for _, a := range l.Argv {
		n += len(a)
	}
	return n
}

func (b *logbook) add(at time.Time, call *session.Call, o *audit.Outcome) {
	l := Log{At: at, Argv: slices.Clone(call.Argv), Reason: o.Error, Stdout: begin(o.Stdout), Stderr: begin(o.Stderr)}
	if r := o.Result; r != nil {
		l.Status, l.ExitCode, l.Signal, l.Reason = r.Status, r.ExitCode, r.Signal, r.Reason
	}
	for i, a := range l.Argv {
		l.Argv[i] = sandbox.Clip(a, 4<<10)
	}
	l.Argv = l.Argv[:min(len(l.Argv), 16)]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	l.Seq = b.seq
	b.kept = append(b.kept, l)
	b.size += l.size()
	for b.size > maxLog && len(b.kept) > 1 {
		b.size -= b.kept[0].size()
		b.kept[0] = Log{}
		b.kept = b.kept[1:]
	}
	if b.fresh != nil {
		close(b.fresh)
		b.fresh = nil
	}
}

func begin(c *audit.Capture) []byte {
	kept := c.Kept()
	return slices.Clone(kept[:min(len(kept), maxLogStream)])
}

// Logs returns the programs of the sandbox that ended after the one with the number
// since, oldest first, as far as they are kept: some 256 KiB, in memory, for as long
// as the sandbox lives and this process does. The channel is closed with the next.
func (h *Handle) Logs(ctx context.Context, since int64) ([]Log, <-chan struct{}, error) {
	l, err := h.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	g := &l.log
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fresh == nil {
		g.fresh = make(chan struct{})
	}
	var out []Log
	for _, e := range g.kept {
		if e.Seq > since {
			out = append(out, e)
		}
	}
	return out, g.fresh, nil
}
