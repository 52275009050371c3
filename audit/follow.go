// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"os"
)

// Follow gives the calls that a filter lets through as they are recorded, by
// whatever process: each when it begins, and again when it has ended. First come the
// last calls that are there already, f.Limit of them (none when it is 0), oldest
// first. It returns when ctx ends, without an error, or when yield says false.
//
// Nothing is asked of the database while nothing is committed: audit.head is written
// after each commit, and the system says when (inotify; elsewhere a look a second).
func (l *Log) Follow(ctx context.Context, f Filter, yield func(Record) bool) error {
	changes, after, err := l.watchHead(ctx)
	if err != nil {
		return err
	}
	more, err := l.last(ctx, f, after, yield)
	for more && err == nil {
		if after, more, err = l.since(ctx, f, after, yield); !more || err != nil {
			break
		}
		select {
		case _, ok := <-changes:
			more = ok
		case <-ctx.Done():
			more = false
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// watchHead says when audit.head is written, and how many records there were then.
func (l *Log) watchHead(ctx context.Context) (changes <-chan struct{}, records int64, _ error) {
	changes, err := watch(ctx, l.path(headFile))
	if errors.Is(err, os.ErrNotExist) {
		if l.onLook != nil {
			l.onLook()
		}
	} else if err != nil {
		return nil, 0, unavailable("audit tail", err)
	}
	if err := l.behind; err != nil {
		return nil, 0, err
	}
	if err := l.r.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM records").Scan(&records); err != nil {
		return nil, 0, unavailable("audit tail", err)
	}
	if err == nil {
		return changes, records, nil
	}
	// The maker of the record died before it made the file, or is at it.
	if records <= 1 {
		return nil, 0, l.nothingYet()
	}
	if changes, err = watch(ctx, l.path(headFile)); errors.Is(err, os.ErrNotExist) {
		err = damaged("audit.head is gone")
	}
	return changes, records, unavailable("audit tail", err)
}

// Last gives the last f.Limit calls, oldest first.
func (l *Log) Last(ctx context.Context, f Filter, yield func(Record) bool) error {
	_, err := l.last(ctx, f, math.MaxInt64, yield)
	return err
}

// last is Last, of those that began up to a record.
func (l *Log) last(ctx context.Context, f Filter, through int64, yield func(Record) bool) (more bool, err error) {
	if f.Limit <= 0 {
		return true, nil
	}
	f.OldestFirst = false
	var list []Record
	var failed error // said behind what could be read
	for r, err := range l.Query(ctx, f) {
		if err != nil {
			failed = err
			break
		}
		if r.Seq <= through {
			list = append(list, r)
		}
	}
	for i := len(list) - 1; i >= 0; i-- {
		if !yield(list[i]) {
			return false, nil
		}
	}
	return failed == nil, failed
}

// since gives the calls of which something was recorded behind a record, and the last
// record that it has seen.
func (l *Log) since(ctx context.Context, f Filter, after int64, yield func(Record) bool) (last int64, more bool, err error) {
	if err := l.behind; err != nil {
		return after, false, err
	}
	tx, err := l.r.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one view for both questions
	if err != nil {
		return after, false, unavailable("audit tail", err)
	}
	defer tx.Rollback()
	if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM records").Scan(&last); err != nil || last <= after {
		return after, true, unavailable("audit tail", err)
	}
	rows, err := tx.QueryContext(ctx, selectCalls+" AND i.entry IN (SELECT entry FROM records WHERE seq > ?) ORDER BY max(i.seq, coalesce(o.seq, 0))", after)
	if err != nil {
		return after, false, unavailable("audit tail", err)
	}
	defer rows.Close()
	for rows.Next() {
		r, err := l.scan(ctx, rows)
		if err != nil {
			return after, false, err
		}
		if f.match(&r) && !yield(r) {
			return last, false, nil
		}
	}
	return last, true, unavailable("audit tail", rows.Err())
}
