// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"database/sql"

	"github.com/caisson-run/caisson/sandbox"
)

const op = "audit"

// change is alter for what is signed with the key.
func (l *Log) change(ctx context.Context, do func(tx querier, head Checkpoint) (Checkpoint, error)) error {
	if l.w == nil {
		return sandbox.Errorf(sandbox.ErrInvalid, op, "the record is open for reading only")
	}
	if l.broken != nil {
		return l.broken
	}
	return l.alter(ctx, do)
}

// Settle takes what lies in audit.tail into the database, and leaves the tail so that
// it can be appended to; see [OpenTail]. Errors are those of [Log.Begin].
func (l *Log) Settle(ctx context.Context) error {
	return l.change(ctx, func(_ querier, head Checkpoint) (Checkpoint, error) { return head, nil })
}

// alter runs do in a transaction that holds the write lock, from a head that was
// checked and covers what lay in audit.tail, and makes the new head known in all places.
//
// ctx ends the wait for its turn and the locks. What has begun takes a moment, and is
// not interrupted: to watch a ctx costs a goroutine for each statement.
func (l *Log) alter(ctx context.Context, do func(tx querier, head Checkpoint) (Checkpoint, error)) error {
	conn, err := l.w.Conn(ctx)
	if err != nil {
		return unavailable(op, err)
	}
	defer conn.Close()
	tail, err := l.holdTail(ctx)
	if err != nil {
		return unavailable(op, err)
	}
	defer tail.release() // before the connection: whoever has that may wait for the tail
	var begun *sql.Tx
	through := context.WithoutCancel(ctx)
	err = l.patiently(ctx, func() (err error) { begun, err = conn.BeginTx(through, nil); return err })
	if err != nil {
		return unavailable(op, err)
	}
	defer begun.Rollback()
	ctx = through
	tx := &writing{begun, &l.known}
	head, err := l.base(ctx, conn, tx, tail)
	if err != nil {
		return unavailable(op, err)
	}
	head, err = do(tx, head)
	if isConstraint(err) {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrConflict, Problem: "that is recorded already", Cause: err}
	}
	if err != nil {
		return unavailable(op, err)
	}
	if err := tail.open(); err != nil {
		return unavailable(op, err)
	}
	if err := begun.Commit(); err != nil {
		return unavailable(op, err)
	}
	if l.onCommit != nil {
		l.onCommit()
	}
	l.good.Store(&head) // signed here, or found good in the tail
	l.settle(conn, head)
	l.tailLine, l.tailSays = tail.settled(head)
	err = l.writeHead(head)
	tail.release()
	conn.Close()
	l.known.prepare(ctx, l.w)
	return unavailable(op, err)
}
