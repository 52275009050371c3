// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
)

// takeIn puts what lies in audit.tail behind the head of the database, and returns the
// head that covers it.
//
// Up to where the sector says that the tail ends everything has to be there, in order,
// and end with the head that the sector has signed; else somebody has damaged it. What
// lies behind that is taken as far as it goes on, signed: it was written by a process
// that was killed before it could say so, or its sector was lost in a power cut. What
// the database holds already is passed over: whoever put it there was killed, or the
// host lost power, before the tail was emptied.
func (l *Log) takeIn(ctx context.Context, tx querier, tail *heldTail, head Checkpoint) (Checkpoint, error) {
	if tail == nil || tail.asLeft && !tail.used {
		return head, nil
	}
	holds := func(promised Checkpoint) error { return l.holds(ctx, tx, promised) }
	reached, err := l.walk(tail, head, holds, func(f *frame) error { return storeFrame(ctx, tx, f) })
	if err != nil || reached == head {
		return head, err
	}
	return reached, storeHead(ctx, tx, reached)
}

// walk gives to put what in the tail goes on from a head, and returns where that ends.
// holds says whether a head that was promised is of the chain up to there.
func (l *Log) walk(tail *heldTail, head Checkpoint, holds func(Checkpoint) error, put func(*frame) error) (Checkpoint, error) {
	end, promised := max(tail.says.End, tailStart), tail.says.Head
	if promised.Count > 0 || end > tailStart {
		switch {
		case promised.Installation != l.inst || !l.valid(promised):
			return head, damagedTail("audit.tail holds a head that is not signed with this key")
		case promised.Count <= head.Count:
			if err := holds(promised); err != nil {
				return head, err
			}
			end, promised = tailStart, head // the database keeps what the sector promises
		}
	}
	b, err := tail.content()
	if err != nil {
		return head, err
	}
	t := taking{log: l, head: head, put: put}
	at, reached := int64(tailStart), head
	for {
		if at == end {
			reached = t.head
		}
		n, err := t.frame(b[min(at-tailStart, int64(len(b))):], at >= end)
		if err != nil {
			return head, err
		}
		if n == 0 || at < end && at+n > end {
			break
		}
		at += n
	}
	if promised.Count > 0 && reached != promised { // its signature is what is stored, too
		return head, damagedTail(fmt.Sprintf("what audit.tail holds from byte %d on is not what was appended", at))
	}
	return t.head, nil
}

// holds says whether a head that was promised is of the database's chain.
func (l *Log) holds(ctx context.Context, tx querier, promised Checkpoint) error {
	err := onChain(ctx, tx, promised)
	if isDamage(err) {
		return damagedTail(fmt.Sprintf("audit.tail was signed for another record %d than the database holds", promised.Count))
	}
	return err
}

// taking is what walk has taken so far.
type taking struct {
	log  *Log
	head Checkpoint // with what was taken
	put  func(*frame) error
}

// frame takes the frame that b begins with, and says how long it is: 0 when there is
// none that goes on from the head. signed has its own head be looked at: without, one
// that is signed follows, and covers it.
func (t *taking) frame(b []byte, signed bool) (size int64, err error) {
	f, size, ok := parseFrame(b, t.log.inst)
	if !ok {
		return 0, nil
	}
	if f.head.Count <= t.head.Count {
		return size, nil // taken before
	}
	if !f.follows(t.head) || !f.complete() || signed && !t.log.valid(f.head) {
		return 0, nil
	}
	if err := t.put(f); err != nil {
		return 0, err
	}
	t.head = f.head
	return size, nil
}

// storeFrame puts a frame into the database.
func storeFrame(ctx context.Context, tx querier, f *frame) error {
	err := insert(ctx, tx, f.records)
	for _, kept := range f.kept {
		if err == nil {
			err = keep(ctx, tx, kept)
		}
	}
	if isConstraint(err) {
		return damagedTail(fmt.Sprintf("audit.tail holds record %d, of which there is one already", f.head.Count))
	}
	return err
}

// follows says whether the frame's records are the next ones of the chain, each holding
// on to the one before.
func (f *frame) follows(head Checkpoint) bool {
	before := head
	for _, r := range f.records {
		if r.seq != before.Count+1 || hex.EncodeToString(r.prev) != before.Link {
			return false
		}
		before.Count, before.Link = r.seq, hex.EncodeToString(r.link())
	}
	return true
}

// complete says whether the records are such as are appended to the tail, and the
// content beside each is what it refers to: no signature covers that.
func (f *frame) complete() bool {
	for i, r := range f.records {
		refers, ok := r.refers()
		if !ok {
			return false
		}
		var kept []string
		for _, content := range f.kept[i] {
			kept = append(kept, hex.EncodeToString(sum(content)))
		}
		slices.Sort(refers)
		slices.Sort(kept)
		if !slices.Equal(slices.Compact(refers), slices.Compact(kept)) {
			return false
		}
	}
	return true
}

// refers are the digests of the content that a call's record refers to. ok is false for
// another record.
func (r *record) refers() (digests []string, ok bool) {
	var c Call
	var e Ending
	switch r.event { // an intent and an outcome share no field's name
	case eventIntent:
		ok = decode(r.body, &c) == nil
	case eventOutcome:
		ok = decode(r.body, &e) == nil
	case eventConnection:
		ok = decode(r.body, new(connectionBody)) == nil
	}
	for _, content := range []*Content{c.Params, c.Argv, c.Code, e.Stdout, e.Stderr} {
		if d := content.blob(); d != "" {
			digests = append(digests, d)
		}
	}
	return digests, ok
}
