// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"database/sql"

	"github.com/caisson-run/caisson/sandbox"
)

const op = "audit"

// change runs do in a transaction, from a head that was checked. What do appends is
// signed with the key.
func (l *Log) change(ctx context.Context, do func(tx querier, head Checkpoint) (Checkpoint, error)) error {
	if l.w == nil {
		return sandbox.Errorf(sandbox.ErrInvalid, op, "the record is open for reading only")
	}
	if l.broken != nil {
		return l.broken
	}
	if l.behind != nil {
		return l.behind
	}
	return l.transact(ctx, func(ctx context.Context, conn *sql.Conn, tx querier) (Checkpoint, error) {
		head, err := l.base(ctx, conn, tx)
		if err != nil {
			return head, err
		}
		return do(tx, head)
	})
}

// transact runs do in a transaction that holds the write lock, and writes the head that
// do returns to audit.head.
//
// ctx ends the wait for the lock. What has begun takes a moment, and is not interrupted:
// to watch a ctx costs a goroutine for each statement.
func (l *Log) transact(ctx context.Context, do func(ctx context.Context, conn *sql.Conn, tx querier) (Checkpoint, error)) error {
	conn, err := l.w.Conn(ctx)
	if err != nil {
		return unavailable(op, err)
	}
	defer conn.Close()
	var begun *sql.Tx
	through := context.WithoutCancel(ctx)
	err = l.patiently(ctx, func() (err error) { begun, err = conn.BeginTx(through, nil); return err })
	if err != nil {
		return unavailable(op, err)
	}
	defer begun.Rollback()
	ctx = through
	head, err := do(ctx, conn, &writing{begun, &l.known})
	if isConstraint(err) {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrConflict, Problem: "that is recorded already", Cause: err}
	}
	if err != nil {
		return unavailable(op, err)
	}
	if err := begun.Commit(); err != nil {
		return unavailable(op, err)
	}
	if l.onCommit != nil {
		l.onCommit()
	}
	l.good.Store(&head) // signed here, or found good
	l.settle(conn, head)
	err = l.writeHead(head)
	conn.Close()
	l.known.prepare(ctx, l.w)
	return unavailable(op, err)
}
