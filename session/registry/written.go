// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"database/sql"
)

// Written is how many bytes the calls of a key, by its ID, have added to the audit log in
// an hour, counted from 1970.
type Written struct {
	Key         string
	Hour, Bytes int64
}

// Written lists what was kept of hours since one, and forgets the others.
func (r *DB) Written(ctx context.Context, since int64) (list []Written, err error) {
	err = r.db.Update(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM written WHERE hour < ?", since); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT key, hour, bytes FROM written")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var w Written
			if err := rows.Scan(&w.Key, &w.Hour, &w.Bytes); err != nil {
				return err
			}
			list = append(list, w)
		}
		return rows.Err()
	})
	return list, r.db.Failed("read", err)
}

// SetWritten keeps what is known of hours, in the place of what was.
func (r *DB) SetWritten(ctx context.Context, list []Written) error {
	return r.db.Failed("count", r.db.Update(ctx, func(tx *sql.Tx) error {
		for _, w := range list {
			if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO written (key, hour, bytes) VALUES (?, ?, ?)", w.Key, w.Hour, w.Bytes); err != nil {
				return err
			}
		}
		return nil
	}))
}
