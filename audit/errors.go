// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"os"
	"syscall"

	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
)

// anew says how to do without a record that is damaged.
const anew = "to begin a new record, move all audit.* files of the state directory away together"

// damage is a record that cannot be built on.
type damage struct{ err *sandbox.Error }

func (d *damage) Error() string { return d.err.Error() }
func (d *damage) Unwrap() error { return d.err }

// tampered ends the problem of each damage.
const tampered = ": the record was damaged or tampered with"

func damaged(problem string) error {
	return &damage{&sandbox.Error{Op: "audit", Kind: sandbox.ErrUnavailable,
		Problem: problem + tampered, Hint: "run: caisson audit verify; " + anew}}
}

// isDamage says whether err is that the record is damaged.
func isDamage(err error) bool {
	var d *damage
	return errors.As(err, &d)
}

// errTailHeld says that another process has audit.tail.
var errTailHeld = errors.New("another process has audit.tail")

// unavailable says in a sentence why the record cannot be written or read.
func unavailable(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *sandbox.Error
	if errors.As(err, &known) {
		return err
	}
	e := &sandbox.Error{Op: op, Kind: sandbox.ErrUnavailable, Problem: "the audit record cannot be used", Cause: err,
		Hint: "nothing runs unrecorded: check the state directory"}
	switch sqlite := errorOf(err); {
	case store.Full(err), errors.Is(err, syscall.EIO), errors.Is(err, syscall.EFBIG): // as SQLite has it
		e.Problem = "the disk of the state directory is full or failing"
		e.Hint = "nothing runs unrecorded: free some space, or set CAISSON_STATE to a directory on another disk"
	case sqlite == locked, errors.Is(err, errTailHeld):
		e.Problem = "another process has held the audit record for more than 10 s"
		e.Hint = "try again; if nothing else runs, look for a process that has audit.db or audit.tail open"
	case sqlite == forbidden, errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EROFS):
		e.Problem = "the audit record cannot be written"
		e.Hint = "nothing runs unrecorded: check who owns the state directory and whether its disk is read-only"
	case sqlite == unsound:
		e.Problem = "audit.db is not a sound database"
		e.Hint = "run: caisson audit verify; " + anew
	}
	return e
}

// databaseError is what an error of SQLite's is about; none for another error.
type databaseError int

const (
	none databaseError = iota
	locked
	forbidden
	unsound
)

// unwritable says whether an error is that nothing can be written.
func unwritable(err error) bool {
	return err != nil && !isDamage(err) && (store.Full(err) || errorOf(err) == forbidden || errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS))
}

// problemOf is the sentence that an error is for people.
func problemOf(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Problem
	}
	return err.Error()
}
