// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"database/sql"
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// errorOf says what SQLite means by an error.
func errorOf(err error) databaseError {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return none
	}
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return locked
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		return forbidden
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return unsound
	}
	return none
}

// state is a number that SQLite changes with the database, by every process that
// writes, as far as the connection has seen; in a transaction it has seen all. The
// connection is nil where there is none.
func state(conn *sql.Conn) (of any, version uint32) {
	err := conn.Raw(func(c any) (err error) {
		of = c
		version, err = c.(sqlite.FileControl).FileControlDataVersion("main")
		return err
	})
	if err != nil {
		return nil, 0
	}
	return of, version
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
