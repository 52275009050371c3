// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/caisson-run/caisson/sandbox"
)

// Entry is a call whose intent is recorded and whose outcome is not yet.
type Entry struct {
	// ID names the call in the record: "aud_" and 26 letters and digits.
	ID string

	log *Log

	mu    sync.Mutex
	ended bool
}

// Begin records an intent. When it returns without an error the intent is on
// disk, and what it says may be done; with an error nothing may run.
//
// Errors are *sandbox.Error: ErrUnavailable when the record cannot be written
// (full disk, locked) or must not be built on, because it was tampered with.
func (l *Log) Begin(ctx context.Context, in Intent) (*Entry, error) {
	id, err := l.newID()
	if err != nil {
		return nil, unavailable("audit", err)
	}
	intent, err := in.record(id)
	if err != nil {
		return nil, err
	}
	if err := l.begins(&in); err != nil {
		return nil, err
	}
	commit := l.commit
	if in.Ends {
		commit = l.commitEnd
	}
	if err := commit(ctx, intent); err != nil {
		return nil, err
	}
	return &Entry{ID: id, log: l}, nil
}

// begins refuses what would begin while the disk is full, although a record of it
// might still fit: that place is kept for ends.
func (l *Log) begins(in *Intent) error {
	if in.Ends || l.reserve == nil || l.reserve.Whole() {
		return nil
	}
	return unavailable("audit", syscall.ENOSPC)
}

// End records what came of it. The record is on disk when it returns. It is
// made even if ctx has ended, as it has when Ctrl-C ended the call. A second
// End is ErrConflict; after another error it may be tried again.
func (e *Entry) End(ctx context.Context, out Outcome) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return sandbox.Errorf(sandbox.ErrConflict, "audit "+e.ID, "its outcome is recorded already")
	}
	outcome, err := out.record(e.ID)
	if err != nil {
		return err
	}
	records, err := e.log.connections(out.Connections)
	if err != nil {
		return err
	}
	if err := e.log.commitEnd(context.WithoutCancel(ctx), append(records, outcome)...); err != nil {
		return err
	}
	e.ended = true
	return nil
}

// Refuse records, in one commit, a call that was refused or failed before
// anything ran.
func (l *Log) Refuse(ctx context.Context, in Intent, out Outcome) error {
	if out.Status == Allowed {
		return sandbox.Errorf(sandbox.ErrInvalid, "audit", "a call that was allowed is recorded by Begin and End")
	}
	id, err := l.newID()
	if err != nil {
		return unavailable("audit", err)
	}
	intent, err := in.record(id)
	if err != nil {
		return err
	}
	outcome, err := out.record(id)
	if err != nil {
		return err
	}
	if err := l.begins(&in); err != nil {
		return err
	}
	return l.commit(context.WithoutCancel(ctx), intent, outcome)
}

func (l *Log) newID() (string, error) {
	b := make([]byte, 16)
	if _, err := io.ReadFull(l.rand, b); err != nil {
		return "", err
	}
	return "aud_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b)), nil
}

// addition is a record to append, with the content that goes beside it.
type addition struct {
	record
	kept []*Capture
}

func (in *Intent) record(id string) (*addition, error) {
	call, kept := in.call()
	return newAddition(id, eventIntent, call, kept)
}

func (out *Outcome) record(id string) (*addition, error) {
	switch out.Status {
	case Allowed, Refused, Failed:
	default:
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "audit "+id, "an outcome is allowed, refused or failed, not %q", out.Status)
	}
	ending, kept := out.ending()
	a, err := newAddition(id, eventOutcome, ending, kept)
	if errors.Is(err, errBodyTooLarge) && ending.Result != nil {
		// Names that a sandbox chose must not keep its end from being recorded.
		ending.FilesOmitted += len(ending.Result.Files)
		ending.Result.Files = nil
		return newAddition(id, eventOutcome, ending, kept)
	}
	return a, err
}

func newAddition(id, event string, v any, kept []*Capture) (*addition, error) {
	body, err := encode(v)
	if err != nil {
		return nil, &sandbox.Error{Op: "audit " + id, Kind: sandbox.ErrInvalid, Problem: "the call cannot be recorded", Cause: err,
			Hint: "shorten its labels, mounts and names"}
	}
	return &addition{record: record{entry: id, event: event, body: body}, kept: kept}, nil
}

// change runs do in a transaction that holds the write lock, from a head that
// was checked, and makes the new head known in both places.
//
// ctx ends the wait for its turn and the lock. What has begun takes a moment, and is not
// interrupted: to watch a ctx costs a goroutine for each statement.
func (l *Log) change(ctx context.Context, do func(tx querier, head Checkpoint) (Checkpoint, error)) error {
	const op = "audit"
	if l.w == nil {
		return sandbox.Errorf(sandbox.ErrInvalid, op, "the record is open for reading only")
	}
	if l.broken != nil {
		return l.broken
	}
	conn, err := l.w.Conn(ctx)
	if err != nil {
		return unavailable(op, err)
	}
	defer conn.Close()
	var begun *sql.Tx
	through := context.WithoutCancel(ctx)
	err = patiently(ctx, func() (err error) { begun, err = conn.BeginTx(through, nil); return err })
	if err != nil {
		return unavailable(op, err)
	}
	defer begun.Rollback()
	ctx = through
	tx := &writing{begun, &l.known}
	head, err := l.checkHead(ctx, tx)
	if err != nil {
		return unavailable(op, err)
	}
	head, err = do(tx, head)
	if isConstraint(err) {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrConflict, Problem: "that is recorded already", Cause: err}
	}
	if err != nil {
		return unavailable(op, err)
	}
	if err := begun.Commit(); err != nil {
		return unavailable(op, err)
	}
	l.good.Store(&head) // signed here
	conn.Close()
	l.known.prepare(ctx, l.w)
	if l.onCommit != nil {
		l.onCommit()
	}
	return unavailable(op, l.writeHead(head))
}

// append seals a record onto the chain and moves the head to it.
func (l *Log) append(ctx context.Context, tx querier, head Checkpoint, r *record) (Checkpoint, error) {
	return l.appendAll(ctx, tx, head, []*record{r})
}

// appendAll is append for many: the head is signed once, for the last.
func (l *Log) appendAll(ctx context.Context, tx querier, head Checkpoint, list []*record) (Checkpoint, error) {
	prev, err := hex.DecodeString(head.Link)
	if err != nil {
		return head, err
	}
	insert, err := tx.PrepareContext(ctx, "INSERT INTO records (seq, at, entry, event, prev, body_digest, digest, signature, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
	if err != nil {
		return head, err
	}
	defer insert.Close()
	seq, at := head.Count, int64(0)
	for _, r := range list {
		seq++
		r.seq, r.at, r.prev = seq, l.now().UnixNano(), prev
		r.seal(l.key, l.inst)
		_, err = insert.ExecContext(ctx, r.seq, r.at, r.entry, r.event, r.prev, r.bodyDigest, r.digest, r.signature, r.body)
		if err != nil {
			return head, err
		}
		prev, at = r.link(), r.at
	}
	next := newCheckpoint(l.key, l.inst, seq, prev, at)
	sig, _ := hex.DecodeString(next.Signature)
	_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO head (one, count, link, at, signature) VALUES (1, ?, ?, ?, ?)", next.Count, prev, at, sig)
	return next, err
}

// keep stores contents, but for those that were redacted once.
func keep(ctx context.Context, tx querier, list []*Capture) error {
	var insert *sql.Stmt
	for _, c := range list {
		if c == nil || len(c.kept) == 0 {
			continue
		}
		if insert == nil {
			var err error
			insert, err = tx.PrepareContext(ctx, `INSERT OR IGNORE INTO blobs (digest, content) SELECT ?, ?
				WHERE NOT EXISTS (SELECT 1 FROM records WHERE entry = ? AND event = 'redact')`)
			if err != nil {
				return err
			}
			defer insert.Close()
		}
		digest := sum(c.kept)
		if _, err := insert.ExecContext(ctx, digest, c.kept, hex.EncodeToString(digest)); err != nil {
			return err
		}
	}
	return nil
}

// checkHead is the part of Verify that each commit can afford: the signed head
// is there, the last record is the one it names, and audit.head, which lags
// behind at most, is on the same chain.
func (l *Log) checkHead(ctx context.Context, q querier) (Checkpoint, error) {
	if err := checkSchema(ctx, q); err != nil {
		return Checkpoint{}, damaged(err.Error())
	}
	head, last, named, err := headAndLast(ctx, q, l.inst)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return head, damaged("the database holds no head")
	case err != nil:
		return head, err
	case !l.valid(head):
		return head, damaged("the head in the database is not signed with this key")
	case last != head.Count:
		return head, damaged(fmt.Sprintf("there are %d records where the head says %d", last, head.Count))
	case !named.is(head):
		return head, notTheSigned(head)
	}
	copied, err := l.readHead()
	if errors.Is(err, os.ErrNotExist) && head.Count == 1 {
		// Whoever made the record died before it made the file, or is at it.
		return head, l.makeHead(head)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return head, damaged("audit.head is gone")
	case errors.Is(err, errHeadDamaged):
		return head, damaged(err.Error())
	case err != nil:
		return head, err
	case copied.Count > head.Count:
		return head, damaged(fmt.Sprintf("audit.head has seen %d records, the database holds %d", copied.Count, head.Count))
	}
	if copied.Count == head.Count && copied.Link == head.Link {
		return head, nil // the usual case
	}
	return head, onChain(ctx, q, copied)
}

// headAndLast is what a commit builds on, in one question, since preparing it is
// most of what one costs: the head in the database, not yet checked, the number
// of the last record, and of the one that the head names what its link is made
// of.
func headAndLast(ctx context.Context, q querier, installation string) (head Checkpoint, last int64, named record, err error) {
	var count, at int64
	var most sql.NullInt64
	var link, sig []byte
	err = q.QueryRowContext(ctx, `SELECT h.count, h.link, h.at, h.signature, (SELECT max(seq) FROM records), r.digest, r.signature
		FROM head AS h LEFT JOIN records AS r ON r.seq = h.count WHERE h.one = 1`).Scan(&count, &link, &at, &sig, &most, &named.digest, &named.signature)
	return newHead(installation, count, link, at, sig), most.Int64, named, err
}

// is says whether c names this record.
func (r *record) is(c Checkpoint) bool {
	link, _ := hex.DecodeString(c.Link)
	return bytes.Equal(r.link(), link)
}

func notTheSigned(c Checkpoint) error {
	return damaged(fmt.Sprintf("record %d is not the one that was signed", c.Count))
}

// onChain says whether record number c.Count has the link that c names.
func onChain(ctx context.Context, q querier, c Checkpoint) error {
	var r record
	err := q.QueryRowContext(ctx, "SELECT digest, signature FROM records WHERE seq = ?", c.Count).Scan(&r.digest, &r.signature)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err != nil || !r.is(c) {
		return notTheSigned(c)
	}
	return nil
}

// storedHead is the head in the database, not yet checked.
func storedHead(ctx context.Context, q querier, installation string) (Checkpoint, error) {
	var count, at int64
	var link, sig []byte
	err := q.QueryRowContext(ctx, "SELECT count, link, at, signature FROM head WHERE one = 1").Scan(&count, &link, &at, &sig)
	if err != nil {
		return Checkpoint{}, err
	}
	return newHead(installation, count, link, at, sig), nil
}

// newHead is a head out of its columns.
func newHead(installation string, count int64, link []byte, at int64, sig []byte) Checkpoint {
	return Checkpoint{Installation: installation, Count: count, Link: hex.EncodeToString(link), Time: unixTime(at), Signature: hex.EncodeToString(sig)}
}
