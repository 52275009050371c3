// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"database/sql"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"

	"github.com/caisson-run/caisson/sandbox"
)

// Entry is a call whose intent is recorded and whose outcome is not yet.
type Entry struct {
	// ID names the call in the record: "aud_" and 26 letters and digits.
	ID string

	log     *Log
	account string

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
	l.count(in.Account, intent)
	return &Entry{ID: id, log: l, account: in.Account}, nil
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
	records = append(records, outcome)
	if err := e.log.commitEnd(context.WithoutCancel(ctx), records...); err != nil {
		return err
	}
	e.log.count(e.account, records...)
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
	if errors.Is(err, errBodyTooLarge) {
		// Nothing runs: who pads a call must not keep its refusal from being recorded.
		intent, err = in.short().record(id)
	}
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
	if err := l.commit(context.WithoutCancel(ctx), intent, outcome); err != nil {
		return err
	}
	l.count(in.Account, intent, outcome)
	return nil
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

// contents are what is kept of it.
func (a *addition) contents() (list [][]byte) {
	for _, c := range a.kept {
		if b := c.Kept(); len(b) > 0 {
			list = append(list, b)
		}
	}
	return list
}

func (in *Intent) record(id string) (*addition, error) {
	call, kept := in.call()
	return newAddition(id, eventIntent, call, kept)
}

// short is in without its lists, of each of which it says how long it is.
func (in *Intent) short() *Intent {
	s := *in
	count := func(n int) []string {
		if n == 0 {
			return nil
		}
		return []string{fmt.Sprintf("… (%d left out)", n)}
	}
	s.Env, s.Secrets, s.Overrides = count(len(in.Env)), count(len(in.Secrets)), count(len(in.Overrides))
	s.Mounts, s.Labels = nil, nil
	for _, name := range count(len(in.Mounts)) {
		s.Mounts = []Mount{{Name: name}}
	}
	for _, name := range count(len(in.Labels)) {
		s.Labels = map[string]string{name: ""}
	}
	return &s
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
		if c := ending.Result.Changes; c != nil {
			c.Applied = nil
		}
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

// append seals a record onto the chain and moves the head to it.
func (l *Log) append(ctx context.Context, tx querier, head Checkpoint, r *record) (Checkpoint, error) {
	return l.appendAll(ctx, tx, head, []*record{r})
}

// appendAll is append for many: the head is signed once, for the last.
func (l *Log) appendAll(ctx context.Context, tx querier, head Checkpoint, list []*record) (Checkpoint, error) {
	next, err := l.seal(head, list)
	if err != nil {
		return head, err
	}
	if err := insert(ctx, tx, list); err != nil {
		return head, err
	}
	return next, storeHead(ctx, tx, next)
}

// seal makes records the next ones of the chain, and returns the head that ends with
// the last.
func (l *Log) seal(head Checkpoint, list []*record) (Checkpoint, error) {
	prev, err := hex.DecodeString(head.Link)
	if err != nil {
		return head, err
	}
	seq, at := head.Count, int64(0)
	for _, r := range list {
		seq++
		r.seq, r.at, r.prev = seq, l.now().UnixNano(), prev
		r.seal(l.key, l.inst)
		prev, at = r.link(), r.at
	}
	return newCheckpoint(l.key, l.inst, seq, prev, at), nil
}

// insert stores records that are sealed.
func insert(ctx context.Context, tx querier, list []*record) error {
	insert, err := tx.PrepareContext(ctx, "INSERT INTO records (seq, at, entry, event, prev, body_digest, digest, signature, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	defer insert.Close()
	for _, r := range list {
		_, err = insert.ExecContext(ctx, r.seq, r.at, r.entry, r.event, r.prev, r.bodyDigest, r.digest, r.signature, r.body)
		if err != nil {
			return err
		}
	}
	return nil
}

// storeHead makes c the head in the database.
func storeHead(ctx context.Context, tx querier, c Checkpoint) error {
	link, err := hex.DecodeString(c.Link)
	if err != nil {
		return err
	}
	sig, err := hex.DecodeString(c.Signature)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO head (one, count, link, at, signature) VALUES (1, ?, ?, ?, ?)", c.Count, link, c.Time.UnixNano(), sig)
	return err
}

// keep stores contents, but for those that were redacted once.
func keep(ctx context.Context, tx querier, list [][]byte) error {
	var insert *sql.Stmt
	for _, content := range list {
		if len(content) == 0 {
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
		digest := sum(content)
		if _, err := insert.ExecContext(ctx, digest, content, hex.EncodeToString(digest)); err != nil {
			return err
		}
	}
	return nil
}
