// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"sync"
)

// Later is a record that is opened when it is wanted. Opening a database takes 2 ms of a
// processor, which pass while a sandbox is prepared. Nothing runs meanwhile: Begin waits, and
// says what went wrong. It is safe for concurrent use.
//
// It is not closed when a run ends: every record is on disk by then, and closing would pay for
// a checkpoint of the database.
type Later struct {
	open   func() (*Log, error)
	once   sync.Once     // begins to open it
	opened chan struct{} // closed when the rest is set
	log    *Log
	err    error
}

// OpenLater is the record of o, which is not opened yet.
func OpenLater(ctx context.Context, o Options) *Later {
	return &Later{opened: make(chan struct{}), open: func() (*Log, error) { return Open(ctx, o) }}
}

// Soon begins to open it, once.
func (l *Later) Soon() {
	l.once.Do(func() {
		go func() {
			defer close(l.opened)
			l.log, l.err = l.open()
		}()
	})
}

// ready waits until it is open.
func (l *Later) ready() error {
	l.Soon()
	<-l.opened
	return l.err
}

// Begin is [Log.Begin].
func (l *Later) Begin(ctx context.Context, in Intent) (*Entry, error) {
	if err := l.ready(); err != nil {
		return nil, err
	}
	return l.log.Begin(ctx, in)
}

// Refuse is [Log.Refuse].
func (l *Later) Refuse(ctx context.Context, in Intent, out Outcome) error {
	if err := l.ready(); err != nil {
		return err
	}
	return l.log.Refuse(ctx, in, out)
}

// Connections is [Log.Connections].
func (l *Later) Connections(ctx context.Context, list []Connection) error {
	if err := l.ready(); err != nil {
		return err
	}
	return l.log.Connections(ctx, list)
}
