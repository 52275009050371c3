// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"syscall"

	"modernc.org/sqlite" // the driver, too
	sqlite3 "modernc.org/sqlite/lib"
)

// Full says whether err may come of a disk that is full, or of a quota: SQLite calls
// that an I/O error in most of its files.
func Full(err error) bool {
	var se *sqlite.Error
	if errors.As(err, &se) {
		code := se.Code() & 0xff
		if code == sqlite3.SQLITE_FULL || code == sqlite3.SQLITE_IOERR {
			return true
		}
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
