// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"

	"github.com/caisson-run/caisson/sandbox"
)

// fresh has the database hold what was recorded until now, in audit.tail too, before it
// is read. Where that fails (the tail is damaged, the disk is full) what the database
// holds can still be read, and who reads it is to be told that it is not all.
func (l *Log) fresh(ctx context.Context) error {
	if l.settleTail != nil {
		return sandbox.Errorf(sandbox.ErrInvalid, op, "the record is open for appending only")
	}
	waiting, _, err := waits(l.path(tailFile))
	if err == nil && waiting {
		err = l.takeAll(ctx)
	}
	return unavailable(op, err)
}

// takeAll takes in what waits. It needs no key: all that it stores is signed.
func (l *Log) takeAll(ctx context.Context) error {
	nothing := func(_ querier, head Checkpoint) (Checkpoint, error) { return head, nil }
	if l.w != nil {
		return l.alter(ctx, nothing)
	}
	w := &Log{dir: l.dir, now: l.now, rand: l.rand, key: l.key, pub: l.pub, inst: l.inst}
	if err := w.openWriter(ctx); err != nil {
		return err
	}
	defer w.Close()
	return w.alter(ctx, nothing)
}

// closing is what Close does around closing the database: SQLite puts its own log away
// then, and what was left for those who append to the tail is so no more. It waits for
// nobody.
func (l *Log) closing() (closed func()) {
	if l.w == nil || l.tailLine == nil {
		return func() {}
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	tail, err := l.holdTail(now)
	if err != nil {
		return func() {}
	}
	as := tail.current(l.dir)
	return func() {
		if as {
			tail.renew(l.dir)
		}
		tail.release()
	}
}
