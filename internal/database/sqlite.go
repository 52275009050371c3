// SPDX-License-Identifier: Apache-2.0

//go:build !lean

package database

import (
	"errors"

	"modernc.org/sqlite" // the driver, too
	sqlite3 "modernc.org/sqlite/lib"
)

// withSQLite says that this program has SQLite in it.
const withSQLite = true

func fullSQLite(err error) bool {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return false
	}
	code := se.Code() & 0xff
	return code == sqlite3.SQLITE_FULL || code == sqlite3.SQLITE_IOERR
}
