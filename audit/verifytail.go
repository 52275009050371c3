// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"syscall"

	"github.com/caisson-run/caisson/internal/database"
	"github.com/caisson-run/caisson/sandbox"
)

// settleToVerify takes in what waits in audit.tail, finds what is wrong with that, and
// returns the head that the file spoke of before. What is wrong with the database is
// found there. Where the disk is full or cannot be written to, the tail is returned, held,
// and is read where it lies.
func (l *Log) settleToVerify(ctx context.Context, rep *Report) (says Checkpoint, tail *heldTail, err error) {
	waiting, says, err := waits(l.path(tailFile))
	if err == nil && waiting {
		if err = l.takeAll(ctx); unwritable(err) {
			rep.Unwritten = problemOf(unavailable("audit verify", err))
			tail, err = l.holdTailToRead(ctx)
		}
	}
	if err == nil && l.still { // now nobody does write
		if tail == nil && exists(l.path(tailFile)) {
			tail, err = l.holdTailToRead(ctx)
		}
		l.reread()
	}
	var d *damage
	if errors.As(err, &d) {
		if d.tail {
			rep.add(0, "tail", "%s", d.err.Problem)
			says = Checkpoint{}
		}
		tail.release()
		return says, nil, nil
	}
	return says, tail, unavailable("audit verify", err)
}

// unwritable says whether an error is that nothing can be written.
func unwritable(err error) bool {
	return err != nil && !isDamage(err) && (database.Full(err) || errorOf(err) == forbidden || errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS))
}

func problemOf(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Problem
	}
	return err.Error()
}

// waiting reads on where the database ends, in what waits in the tail.
func (v *verifier) waiting(tail *heldTail) error {
	if tail == nil {
		return nil
	}
	// Whether the database holds what the tail speaks of is asked of every tail later.
	head, err := v.log.walk(tail, v.rep.Head, func(Checkpoint) error { return nil }, v.frame)
	var d *damage
	switch {
	case errors.As(err, &d):
		v.rep.add(0, "tail", "%s", d.err.Problem)
		return nil
	case err != nil:
		return err
	}
	v.rep.Head = head
	return nil
}

// frame holds a frame's records against each other, like those of the database.
func (v *verifier) frame(f *frame) error {
	for i, r := range f.records {
		v.record(r)
		v.last = r
		v.rep.Waiting++
		for _, content := range f.kept[i] {
			v.beside[hex.EncodeToString(sum(content))] = true
		}
	}
	return nil
}
