// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package audit

import (
	"context"
	"os"

	"github.com/caisson-run/caisson/sandbox"
)

// heldTail is nil here: only Linux has programs that append to audit.tail.
type heldTail struct {
	says         tailHead
	used, asLeft bool
}

// holdTail finds no tail. One that a caisson on Linux left may hold what the database
// does not.
func (l *Log) holdTail(context.Context) (*heldTail, error) {
	if waiting, _, err := waits(l.path(tailFile)); err != nil || waiting {
		return nil, &sandbox.Error{Op: "audit", Kind: sandbox.ErrUnsupported, Problem: "audit.tail is read on Linux only", Cause: err,
			Hint: "run caisson audit ls there, with this state directory"}
	}
	return nil, nil
}

func (l *Log) holdTailToRead(ctx context.Context) (*heldTail, error) { return l.holdTail(ctx) }

func (h *heldTail) release()                                        {}
func (h *heldTail) open() error                                     { return nil }
func (h *heldTail) content() ([]byte, error)                        { return nil, nil }
func (h *heldTail) settled(Checkpoint) (line []byte, says tailHead) { return nil, says }
func (h *heldTail) current(string) bool                             { return false }
func (h *heldTail) renew(string)                                    {}

// writeTail is never called: nothing makes a Log that appends to the tail.
func (l *Log) writeTail(context.Context, []*waiter) error { return errUnsettled }

// waits says whether something lies in the tail.
func waits(path string) (waiting bool, says Checkpoint, err error) {
	info, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return false, says, nil
	}
	return err == nil && info.Size() > 0, says, err
}
