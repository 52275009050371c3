// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/caisson-run/caisson/internal/database"
	"github.com/caisson-run/caisson/sandbox"
)

// damaged is the error of a record that cannot be built on.
func damaged(problem string) error {
	return &sandbox.Error{Op: "audit", Kind: sandbox.ErrUnavailable, Problem: problem + ": the record was damaged or tampered with",
		Hint: "run: caisson audit verify; to begin a new record, move audit.db, audit.db-wal, audit.head and audit.key away together"}
}

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
	code := 0
	var se *sqlite.Error
	if errors.As(err, &se) {
		code = se.Code()
	}
	switch {
	case database.Full(err):
		e.Problem = "the disk of the state directory is full or failing"
		e.Hint = "nothing runs unrecorded: free some space, or set CAISSON_STATE to a directory on another disk"
	case code&0xff == sqlite3.SQLITE_BUSY, code&0xff == sqlite3.SQLITE_LOCKED:
		e.Problem = "another process has held the audit record for more than 10 s"
		e.Hint = "try again; if nothing else runs, look for a process that has audit.db open"
	case code&0xff == sqlite3.SQLITE_READONLY, code&0xff == sqlite3.SQLITE_CANTOPEN, errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EROFS):
		e.Problem = "the audit record cannot be written"
		e.Hint = "nothing runs unrecorded: check who owns the state directory and whether its disk is read-only"
	case code&0xff == sqlite3.SQLITE_CORRUPT, code&0xff == sqlite3.SQLITE_NOTADB:
		e.Problem = "audit.db is not a sound database"
		e.Hint = "run: caisson audit verify; to begin a new record, move audit.db, audit.db-wal, audit.head and audit.key away together"
	}
	return e
}

// isConstraint says whether a unique index refused a row.
func isConstraint(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && se.Code()&0xff == sqlite3.SQLITE_CONSTRAINT
}

// isBusy says whether another process holds the lock.
func isBusy(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && se.Code()&0xff == sqlite3.SQLITE_BUSY
}

// isUndone says whether what a writer that was killed was about has to be taken back
// first.
func isUndone(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && se.Code() == sqlite3.SQLITE_READONLY_ROLLBACK
}

// passing says whether an error is of the moment or of the host, and not of what is in
// the database.
func passing(ctx context.Context, err error) bool {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return ctx.Err() != nil
	}
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_FULL:
		return true
	}
	return false
}
