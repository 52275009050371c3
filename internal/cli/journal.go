// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"sync"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/session"
)

// journal is an audit record that is opened when it is wanted. Opening a database takes
// 2 ms of a processor, which pass while a call's world is made; but the keeper of its
// sandbox, which takes longer to start, is started first. Nothing runs meanwhile:
// Begin waits, and says what went wrong.
//
// It is not closed when a run ends: every record is on disk by then, and
// closing would pay for a checkpoint of the database.
type journal struct {
	open   func() (*audit.Log, error)
	once   sync.Once     // begins to open it
	opened chan struct{} // closed when the rest is set
	log    *audit.Log
	err    error
}

var _ session.Journal = (*journal)(nil)

func newJournal(ctx context.Context, dir *store.Dir) *journal {
	return &journal{opened: make(chan struct{}), open: func() (*audit.Log, error) {
		return audit.Open(ctx, audit.Options{Dir: dir.Path()})
	}}
}

// Soon begins to open it, once.
func (j *journal) Soon() {
	j.once.Do(func() {
		go func() {
			defer close(j.opened)
			j.log, j.err = j.open()
		}()
	})
}

// ready waits until it is open.
func (j *journal) ready() error {
	j.Soon()
	<-j.opened
	return j.err
}

func (j *journal) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	if err := j.ready(); err != nil {
		return nil, err
	}
	return j.log.Begin(ctx, in)
}

func (j *journal) Refuse(ctx context.Context, in audit.Intent, out audit.Outcome) error {
	if err := j.ready(); err != nil {
		return err
	}
	return j.log.Refuse(ctx, in, out)
}

func (j *journal) Connections(ctx context.Context, list []audit.Connection) error {
	if err := j.ready(); err != nil {
		return err
	}
	return j.log.Connections(ctx, list)
}
