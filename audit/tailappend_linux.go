// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"time"
)

// OpenTail opens the record for a program that records one call and ends: it can Begin,
// Refuse and record Connections, and appends to audit.tail, without the database. The
// record has to be there; Appendable says whether it is.
//
// Where the tail has to be looked at first (another boot, a writer that was killed, a
// database that changed, a tail that has grown long) settle is called, at most three
// times for a commit: it has another program call [Log.Settle]. Errors are those of Open
// and of settle.
func OpenTail(o Options, settle func(context.Context) error) (*Log, error) {
	l := &Log{dir: o.Dir, now: o.Now, rand: o.Rand, reserve: o.Reserve, settleTail: settle}
	if l.now == nil {
		l.now = time.Now
	}
	if l.rand == nil {
		l.rand = rand.Reader
	}
	if err := l.loadKey(false); err != nil {
		return nil, err
	}
	return l, nil
}

// mostSettled is how often a commit has the tail looked at: others may leave it in need
// of that again meanwhile.
const mostSettled = 3

// writeTail appends what a batch brings to audit.tail.
func (l *Log) writeTail(ctx context.Context, batch []*waiter) error {
	if l.broken != nil {
		return l.broken
	}
	var list []*addition
	for _, w := range batch {
		list = append(list, w.list...)
	}
	for settled := 0; ; settled++ {
		// Who has just had the database looked at need not find it as it was then.
		err := l.appendTail(ctx, list, settled > 0)
		if !errors.Is(err, errUnsettled) || settled == mostSettled {
			return unavailable("audit", err)
		}
		if err := l.settleTail(ctx); err != nil {
			return unavailable("audit", err)
		}
	}
}

func (l *Log) appendTail(ctx context.Context, list []*addition, looked bool) error {
	h, err := l.holdTail(ctx)
	if err != nil {
		return err
	}
	defer h.release()
	head, err := l.tailHead(h, looked)
	if err != nil {
		return err
	}
	var records []*record
	for _, a := range list {
		records = append(records, &a.record)
	}
	if head, err = l.seal(head, records); err != nil {
		return err
	}
	if err := h.append(newFrame(list, head).encode(), head); err != nil {
		return err
	}
	l.good.Store(&head) // signed here
	if l.onCommit != nil {
		l.onCommit()
	}
	return l.writeHead(head)
}

// tailHead is the head that the next frame builds on: what checkHead is for the
// database. The key's owner signed it, it is what audit.head says and what the last frame
// ends with, nothing follows that, and the sector is of this boot and of a moment at which
// nobody wrote to the database.
func (l *Log) tailHead(h *heldTail, looked bool) (Checkpoint, error) {
	says := h.says
	if looked {
		says.Base = fingerprint(l.dir)
	}
	if !says.current(l.dir) || says.End > mostTail {
		return Checkpoint{}, errUnsettled
	}
	if more, err := h.goesOn(); err != nil || more {
		return Checkpoint{}, cmp.Or(err, errUnsettled)
	}
	if l.inst == "" {
		l.inst = says.Head.Installation
	}
	copied, err := l.readHead() // which is signed for this installation
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, errHeadDamaged):
		return Checkpoint{}, errUnsettled // which says what is wrong with it
	case err != nil:
		return Checkpoint{}, err
	case copied != says.Head:
		return Checkpoint{}, errUnsettled
	case says.End == tailStart:
		return says.Head, nil
	}
	if last, err := h.last(l.inst); err != nil || last != says.Head {
		return Checkpoint{}, cmp.Or(err, errUnsettled)
	}
	return says.Head, nil
}
