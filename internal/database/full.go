// SPDX-License-Identifier: Apache-2.0

package database

import (
	"errors"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Full says whether err may come of a disk that is full: SQLite calls that an I/O
// error in most of its files.
func Full(err error) bool {
	code := 0
	var se *sqlite.Error
	if errors.As(err, &se) {
		code = se.Code() & 0xff
	}
	return code == sqlite3.SQLITE_FULL || code == sqlite3.SQLITE_IOERR || errors.Is(err, syscall.ENOSPC)
}
