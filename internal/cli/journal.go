// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/session"
)

// journal is an audit record that is still being opened. Opening it takes 2 ms,
// which pass while the call is decided on and its world is made. Nothing runs
// meanwhile: Begin waits, and says what went wrong.
//
// It is not closed when a run ends: every record is on disk by then, and
// closing would pay for a checkpoint of the database.
type journal struct {
	opened chan struct{} // closed when the rest is set
	log    *audit.Log
	err    error
}

var _ session.Journal = (*journal)(nil)

func openJournal(ctx context.Context, dir *store.Dir) *journal {
	j := &journal{opened: make(chan struct{})}
	go func() {
		defer close(j.opened)
		j.log, j.err = audit.Open(ctx, audit.Options{Dir: dir.Path()})
	}()
	return j
}

func (j *journal) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	if <-j.opened; j.err != nil {
		return nil, j.err
	}
	return j.log.Begin(ctx, in)
}

func (j *journal) Refuse(ctx context.Context, in audit.Intent, out audit.Outcome) error {
	if <-j.opened; j.err != nil {
		return j.err
	}
	return j.log.Refuse(ctx, in, out)
}

func (j *journal) Connections(ctx context.Context, list []audit.Connection) error {
	if <-j.opened; j.err != nil {
		return j.err
	}
	return j.log.Connections(ctx, list)
}
