// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Prune is retention: it drops what is known of the calls that began before a
// time (bodies, and the content that no later record refers to) and keeps their
// digests, so that the chain stays whole. It returns how many records lost
// their body. What is dropped is overwritten on disk.
func (l *Log) Prune(ctx context.Context, before time.Time) (dropped int64, err error) {
	id, err := l.newID()
	if err != nil {
		return 0, unavailable("audit prune", err)
	}
	err = l.change(ctx, func(tx querier, head Checkpoint) (Checkpoint, error) {
		// Everything up to the first record that is young enough: an outcome
		// goes with its intent only if it is old enough itself.
		var through int64
		err := tx.QueryRowContext(ctx, "SELECT coalesce(min(seq) - 1, ?) FROM records WHERE at >= ? AND seq > 1", head.Count, before.UnixNano()).Scan(&through)
		if err != nil {
			return head, err
		}
		res, err := tx.ExecContext(ctx, "UPDATE records SET body = NULL WHERE seq <= ? AND event IN ('intent', 'outcome', 'connection') AND body IS NOT NULL", through)
		if err != nil {
			return head, err
		}
		if dropped, err = res.RowsAffected(); err != nil || dropped == 0 {
			return head, err
		}
		if err := dropUnreferred(ctx, tx); err != nil {
			return head, err
		}
		body, err := encode(pruneBody{Before: before.UnixNano(), Through: through})
		if err != nil {
			return head, err
		}
		return l.append(ctx, tx, head, &record{entry: id, event: eventPrune, body: body})
	})
	if err == nil && dropped > 0 {
		return dropped, l.shred(ctx)
	}
	l.shredAgain(ctx)
	return 0, err
}

// dropUnreferred deletes the content that no body refers to any more.
func dropUnreferred(ctx context.Context, tx querier) error {
	rows, err := tx.QueryContext(ctx, "SELECT event, body FROM records WHERE body IS NOT NULL AND event IN ('intent', 'outcome')")
	if err != nil {
		return err
	}
	defer rows.Close()
	referred := map[string]bool{}
	for rows.Next() {
		var event string
		var body []byte
		if err := rows.Scan(&event, &body); err != nil {
			return err
		}
		digests, ok := (&record{event: event, body: body}).refers()
		if !ok {
			return damaged("a body cannot be read")
		}
		for _, digest := range digests {
			referred[digest] = true
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return deleteBlobs(ctx, tx, func(digest string) bool { return !referred[digest] })
}

func deleteBlobs(ctx context.Context, tx querier, gone func(digest string) bool) error {
	rows, err := tx.QueryContext(ctx, "SELECT digest FROM blobs")
	if err != nil {
		return err
	}
	defer rows.Close()
	var list [][]byte
	for rows.Next() {
		var d []byte
		if err := rows.Scan(&d); err != nil {
			return err
		}
		if gone(hex.EncodeToString(d)) {
			list = append(list, d)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, d := range list {
		if _, err := tx.ExecContext(ctx, "DELETE FROM blobs WHERE digest = ?", d); err != nil {
			return err
		}
	}
	return nil
}

// Redact deletes content by its digest (Content.SHA256, or Content.Kept where
// there is one), keeps it from being stored again, and records that and why.
// It is overwritten on disk. ErrNotFound says that no such content is kept,
// ErrConflict that it was redacted before.
func (l *Log) Redact(ctx context.Context, digest, reason string) error {
	op := "audit redact " + clean(digest, 64)
	raw, err := hex.DecodeString(digest)
	if err != nil || len(raw) != 32 || hex.EncodeToString(raw) != digest {
		return sandbox.Errorf(sandbox.ErrInvalid, op, "a digest is 64 lower-case hexadecimal digits")
	}
	body, err := encode(redactBody{Content: digest, Reason: clean(reason, maxText)})
	if err != nil {
		return unavailable(op, err)
	}
	err = l.change(ctx, func(tx querier, head Checkpoint) (Checkpoint, error) {
		var done int
		err := tx.QueryRowContext(ctx, "SELECT count(*) FROM records WHERE entry = ? AND event = 'redact'", digest).Scan(&done)
		if err != nil {
			return head, err
		}
		if done > 0 {
			return head, sandbox.Errorf(sandbox.ErrConflict, op, "it was redacted before")
		}
		res, err := tx.ExecContext(ctx, "DELETE FROM blobs WHERE digest = ?", raw)
		if err != nil {
			return head, err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			if err == nil {
				err = &sandbox.Error{Op: op, Kind: sandbox.ErrNotFound, Problem: "no such content is kept", Hint: "caisson audit show prints the digests of a call's content"}
			}
			return head, err
		}
		return l.append(ctx, tx, head, &record{entry: digest, event: eventRedact, body: body})
	})
	if err != nil {
		l.shredAgain(ctx)
		return err
	}
	return l.shred(ctx)
}

// Digests are those of a call's content, to be redacted: of the parts that are
// named, command, params, code, stdout, stderr, or of all. ErrInvalid for another
// part, ErrNotFound when nothing of them is kept.
func (d *Detail) Digests(parts ...string) ([]string, error) {
	op := "audit redact " + d.ID
	var c Call
	var e Ending
	if d.Call != nil {
		c = *d.Call
	}
	if d.Ending != nil {
		e = *d.Ending
	}
	all := map[string]*Content{"command": c.Argv, "params": c.Params, "code": c.Code, "stdout": e.Stdout, "stderr": e.Stderr}
	if len(parts) == 0 {
		parts = slices.Sorted(maps.Keys(all))
	}
	var out []string
	for _, name := range parts {
		content, ok := all[name]
		if !ok {
			return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "it has no part " + clean(name, 64), Hint: "parts are command, params, code, stdout and stderr"}
		}
		if digest := content.blob(); digest != "" && !slices.Contains(out, digest) {
			out = append(out, digest)
		}
	}
	if len(out) == 0 {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrNotFound, Problem: "nothing of it is kept", Hint: "caisson audit show prints what is"}
	}
	return out, nil
}

// shred empties SQLite's write-ahead log, which still holds the pages as they
// were before a deletion.
func (l *Log) shred(ctx context.Context) error {
	var busy, frames, moved int
	err := l.w.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved)
	if err == nil && busy != 0 {
		return &sandbox.Error{Op: "audit", Kind: sandbox.ErrUnavailable,
			Problem: "it is deleted, but audit.db-wal still holds it while another process reads the record",
			Hint:    "it is overwritten by the next runs, or when the last process that reads the record ends"}
	}
	return unavailable("audit", err)
}

// shredAgain is for a caller that finds deleted what it was to delete. The process that
// deleted it may have been killed before the log was emptied, or met a reader.
func (l *Log) shredAgain(ctx context.Context) {
	if l.w != nil {
		_ = l.shred(ctx)
	}
}
