// SPDX-License-Identifier: Apache-2.0

package database

import (
	"errors"
	"syscall"
)

// Full says whether err may come of a disk that is full, or of a quota: SQLite calls
// that an I/O error in most of its files.
func Full(err error) bool {
	return fullSQLite(err) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
