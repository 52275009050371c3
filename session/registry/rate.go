// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Instant is a time on a clock that cannot be set: how long ago the host was
// booted, and which boot that was. All processes of a host share it.
type Instant struct {
	Boot  string
	Since time.Duration
}

// Rate bounds how often something is done: Max times within any Per, by the
// caller that Bucket names. It slides: a window begins with each time.
type Rate struct {
	Bucket string
	Max    int64
	Per    time.Duration
}

// Take counts one time against each of rates, or against none: where one is used
// up, full is its index and wait how long it stays so. full is -1 otherwise.
//
// It is one transaction: however many ask at once, in however many processes, no
// window has more than its rate allows. What was before the host's last boot counts
// as if it had been in the moment of the boot.
func (r *DB) Take(ctx context.Context, now Instant, rates []Rate) (full int, wait time.Duration, err error) {
	full = -1
	err = r.db.Update(ctx, func(tx *sql.Tx) error {
		for i, rate := range rates {
			if rate.Max <= 0 || rate.Per <= 0 {
				return sandbox.Errorf(sandbox.ErrInvalid, "rate", "it allows nothing")
			}
			if slices.ContainsFunc(rates[:i], func(o Rate) bool { return o == rate }) {
				continue // two rules that say the same are one
			}
			left, err := take(ctx, tx, now, rate)
			if err != nil {
				return err
			}
			if left > wait {
				full, wait = i, left
			}
		}
		if full >= 0 {
			return errFull
		}
		return nil
	})
	if errors.Is(err, errFull) {
		return full, wait, nil
	}
	return full, wait, r.db.Failed("count", err)
}

// errFull takes the transaction back.
var errFull = errors.New("a rate is used up")

// take counts one time; wait is how long the rate stays used up, and 0 when it is
// not.
func take(ctx context.Context, tx *sql.Tx, now Instant, rate Rate) (wait time.Duration, _ error) {
	var taken, newest int64
	var boot string
	err := tx.QueryRowContext(ctx, "SELECT taken, boot, newest FROM rates WHERE bucket = ?", rate.Bucket).Scan(&taken, &boot, &newest)
	at := now.Since.Nanoseconds()
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if err := forgetRates(ctx, tx, now); err != nil {
			return 0, err
		}
	case err != nil:
		return 0, err
	case boot == now.Boot:
		at = max(at, newest) // another process looked at the clock a moment later
	}
	slot := taken % rate.Max
	var oldest int64
	err = tx.QueryRowContext(ctx, "SELECT CASE WHEN boot = ? THEN at ELSE 0 END FROM rate_times WHERE bucket = ? AND slot = ?", now.Boot, rate.Bucket, slot).Scan(&oldest)
	if err == nil && at-oldest < rate.Per.Nanoseconds() {
		return rate.Per - time.Duration(at-oldest), nil
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO rates (bucket, most, per, taken, boot, newest) VALUES (?, ?, ?, 1, ?, ?)
		ON CONFLICT (bucket) DO UPDATE SET taken = taken + 1, boot = excluded.boot, newest = excluded.newest`,
		rate.Bucket, rate.Max, rate.Per.Nanoseconds(), now.Boot, at); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO rate_times (bucket, slot, boot, at) VALUES (?, ?, ?, ?) ON CONFLICT (bucket, slot) DO UPDATE SET boot = excluded.boot, at = excluded.at",
		rate.Bucket, slot, now.Boot, at)
	return 0, err
}

// forgetRates drops what no rate looks at any more. It runs when a bucket is
// used for the first time.
func forgetRates(ctx context.Context, tx *sql.Tx, now Instant) error {
	const over = "SELECT bucket FROM rates WHERE CASE WHEN boot = ? THEN newest ELSE 0 END + per <= ?"
	for _, stmt := range []string{"DELETE FROM rate_times WHERE bucket IN (" + over + ")", "DELETE FROM rates WHERE bucket IN (" + over + ")"} {
		if _, err := tx.ExecContext(ctx, stmt, now.Boot, now.Since.Nanoseconds()); err != nil {
			return err
		}
	}
	return nil
}
