// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Filter says which calls a Query gives. The zero value is all of them, newest
// first.
type Filter struct {
	Since, Until time.Time // when it began: Since included, Until not; zero is no bound
	Actor        string
	Kind         string
	Sandbox      string
	Tool         string
	Of           string // connections of the call with this ID
	Status       Status
	Verdict      Verdict
	Rule         string // in what decided it: a part of its name or place
	Limit        int    // at most so many; 0 is all
	OldestFirst  bool   // otherwise the newest come first
}

// Verdict is what was decided about a call, whatever came of it.
type Verdict string

// The verdicts. A call that a person was asked about counts as that alone.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
	Ask   Verdict = "ask"
)

// Verdict is what was decided; empty when that is not known any more.
func (r *Record) Verdict() Verdict {
	switch {
	case r.Status == Pruned || r.Call == nil:
		return ""
	case r.Call.Approval != nil:
		return Ask
	case r.Status == Refused:
		return Deny
	}
	return Allow
}

// rule is what is recorded of what decided it.
func (r *Record) rule() string {
	switch {
	case r.Call != nil && r.Call.Connection != nil:
		return r.Call.Connection.Rule + " " + r.Call.Connection.From
	case r.Ending != nil && r.Ending.Result != nil:
		return r.Ending.Result.Rule
	}
	return ""
}

// Record is one call as it is recorded, intent and outcome; or one connection of a
// sandbox's, which is one record, and has no Ending (Call.Connection says all).
type Record struct {
	ID     string    `json:"id"`
	Seq    int64     `json:"seq"` // of the intent
	Time   time.Time `json:"time"`
	Status Status    `json:"status"`
	// Command is the command line; nil when there was none, or it was redacted.
	Command []string `json:"command,omitempty"`
	Call    *Call    `json:"call,omitempty"` // nil once pruned
	Digest  string   `json:"digest"`         // of the intent, hex

	EndSeq    int64      `json:"end_seq,omitempty"`
	Ended     *time.Time `json:"ended,omitempty"`
	Ending    *Ending    `json:"ending,omitempty"`
	EndDigest string     `json:"end_digest,omitempty"`
}

// Query gives the calls that a filter lets through. It does not check the
// chain: Verify does. An error ends the sequence; it comes behind what can be read
// where an audit.tail could not be taken over.
func (l *Log) Query(ctx context.Context, f Filter) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		behind := l.behind
		if l.r != nil {
			for r, err := range l.query(ctx, f) {
				if !yield(r, err) || err != nil {
					return
				}
			}
		}
		if behind != nil {
			yield(Record{}, behind)
		}
	}
}

// query is Query of what the database holds.
func (l *Log) query(ctx context.Context, f Filter) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		order := "DESC"
		if f.OldestFirst {
			order = "ASC"
		}
		since, until := int64(math.MinInt64), int64(math.MaxInt64)
		if !f.Since.IsZero() {
			since = f.Since.UnixNano()
		}
		if !f.Until.IsZero() {
			until = f.Until.UnixNano()
		}
		rows, err := l.r.QueryContext(ctx, selectCalls+" AND i.at >= ? AND i.at < ? ORDER BY i.seq "+order, since, until)
		if err != nil {
			yield(Record{}, unavailable("audit", err))
			return
		}
		defer rows.Close()
		for n := 0; rows.Next() && (f.Limit <= 0 || n < f.Limit); {
			r, err := l.scan(ctx, rows)
			if err == nil && !f.match(&r) {
				continue
			}
			n++
			if !yield(r, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(Record{}, unavailable("audit", err))
		}
	}
}

const selectCalls = `SELECT i.entry, i.event, i.seq, i.at, i.body, i.digest, o.seq, o.at, o.body, o.digest
	FROM records i LEFT JOIN records o ON o.entry = i.entry AND o.event = 'outcome'
	WHERE i.event IN ('intent', 'connection')`

func (f *Filter) match(r *Record) bool {
	var c Call
	if r.Call != nil {
		c = *r.Call
	}
	return (f.Actor == "" || f.Actor == c.Actor) && (f.Kind == "" || f.Kind == c.Kind) &&
		(f.Sandbox == "" || f.Sandbox == c.Sandbox) && (f.Tool == "" || f.Tool == c.Tool) && (f.Verdict == "" || f.Verdict == r.Verdict()) &&
		(f.Rule == "" || strings.Contains(r.rule(), f.Rule)) && (f.Of == "" || f.Of == c.Of) && (f.Status == "" || f.Status == r.Status)
}

func (l *Log) scan(ctx context.Context, rows *sql.Rows) (Record, error) {
	var r Record
	var event string
	var at int64
	var endSeq, endAt sql.NullInt64
	var body, endBody, digest, endDigest []byte
	if err := rows.Scan(&r.ID, &event, &r.Seq, &at, &body, &digest, &endSeq, &endAt, &endBody, &endDigest); err != nil {
		return r, unavailable("audit", err)
	}
	r.Time, r.Digest, r.Status = unixTime(at), hex.EncodeToString(digest), Unfinished
	if event == eventConnection {
		return r, r.connected(body)
	}
	if body != nil {
		r.Call = new(Call)
		if err := decode(body, r.Call); err != nil {
			return r, damaged("record " + r.ID + " cannot be read")
		}
		argv, err := l.content(ctx, r.Call.Argv)
		if err != nil {
			return r, err
		}
		if argv != nil {
			r.Command = strings.Split(string(argv), "\x00")
		}
	}
	if endSeq.Valid {
		ended := unixTime(endAt.Int64)
		r.EndSeq, r.Ended, r.EndDigest = endSeq.Int64, &ended, hex.EncodeToString(endDigest)
		if endBody != nil {
			r.Ending = new(Ending)
			if err := decode(endBody, r.Ending); err != nil {
				return r, damaged("record " + r.ID + " cannot be read")
			}
			r.Status = r.Ending.Status
		}
	}
	if r.Call == nil || endSeq.Valid && r.Ending == nil {
		r.Status = Pruned
	}
	return r, nil
}

// connected reads the body of a connection's record.
func (r *Record) connected(body []byte) error {
	if r.Status = Pruned; body == nil {
		return nil
	}
	var b connectionBody
	if err := decode(body, &b); err != nil {
		return damaged("record " + r.ID + " cannot be read")
	}
	r.Call, r.Status = &b.Call, b.Status
	if ended := b.ended(); !ended.IsZero() {
		r.Ended = &ended
	}
	return nil
}

// content fetches what is kept of c; nil when nothing is, or it was redacted.
func (l *Log) content(ctx context.Context, c *Content) ([]byte, error) {
	if c.blob() == "" {
		return nil, nil
	}
	digest, err := hex.DecodeString(c.blob())
	if err != nil {
		return nil, damaged("a digest cannot be read")
	}
	var b []byte
	err = l.r.QueryRowContext(ctx, "SELECT content FROM blobs WHERE digest = ?", digest).Scan(&b)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return b, unavailable("audit", err)
}

// Detail is a call with what is kept of its content: the first KeepBytes of
// each; nil when there was none, or it was redacted or dropped.
type Detail struct {
	Record
	Params []byte `json:"params,omitempty"` // of a tool, JSON
	Code   []byte `json:"code,omitempty"`
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	// Connections are what its network did, oldest first; Query gives the rest
	// where there are more.
	Connections     []Record `json:"connections,omitempty"`
	MoreConnections bool     `json:"more_connections,omitempty"`
}

// maxShown bounds the connections of a Detail.
const maxShown = 1000

// Show gives one call by its id, or by the beginning of an id that only one
// call has. Errors: ErrNotFound, and ErrInvalid when several begin so.
func (l *Log) Show(ctx context.Context, id string) (*Detail, error) {
	op := "call " + clean(id, 64)
	d, err := l.find(ctx, op, id)
	if err != nil {
		return nil, err
	}
	var params, code, stdout, stderr *Content
	if d.Call != nil {
		params, code = d.Call.Params, d.Call.Code
	}
	if d.Ending != nil {
		stdout, stderr = d.Ending.Stdout, d.Ending.Stderr
	}
	for _, part := range []struct {
		from *Content
		to   *[]byte
	}{{params, &d.Params}, {code, &d.Code}, {stdout, &d.Stdout}, {stderr, &d.Stderr}} {
		if *part.to, err = l.content(ctx, part.from); err != nil {
			return nil, err
		}
	}
	return d, l.addConnections(ctx, d)
}

func (l *Log) addConnections(ctx context.Context, d *Detail) error {
	if d.Call != nil && d.Call.Network == "" {
		return nil // it came to no sandbox
	}
	for r, err := range l.query(ctx, Filter{Of: d.ID, Since: d.Time, OldestFirst: true}) {
		if err != nil {
			return err
		}
		if d.MoreConnections = len(d.Connections) == maxShown; d.MoreConnections {
			return nil
		}
		d.Connections = append(d.Connections, r)
	}
	return nil
}

func (l *Log) find(ctx context.Context, op, id string) (*Detail, error) {
	missing := &sandbox.Error{Op: op, Kind: sandbox.ErrNotFound, Problem: "there is no such call", Hint: "caisson audit ls prints the ids"}
	if id == "" {
		return nil, missing
	}
	behind := l.behind
	if l.r == nil {
		return nil, behind
	}
	// Ids are ASCII: what begins with id sorts below id followed by '\x7f'.
	rows, err := l.r.QueryContext(ctx, selectCalls+" AND i.entry >= ? AND i.entry < ? LIMIT 2", id, id+"\x7f")
	if err != nil {
		return nil, unavailable(op, err)
	}
	defer rows.Close()
	var d *Detail
	for rows.Next() {
		if d != nil {
			return nil, sandbox.Errorf(sandbox.ErrInvalid, op, "several calls begin so")
		}
		r, err := l.scan(ctx, rows)
		if err != nil {
			return nil, err
		}
		d = &Detail{Record: r}
	}
	if err := rows.Err(); err != nil {
		return nil, unavailable(op, err)
	}
	switch {
	case behind != nil && (d == nil || d.Status == Unfinished): // the rest may be there, and cannot be read
		return nil, behind
	case d == nil:
		return nil, missing
	}
	return d, nil
}

// Checkpoint is the signed head as it is now, to be kept elsewhere and given
// to a later Verify.
func (l *Log) Checkpoint(ctx context.Context) (Checkpoint, error) {
	if err := l.behind; err != nil {
		return Checkpoint{}, err
	}
	return l.storedCheckpoint(ctx)
}

// storedCheckpoint is Checkpoint of what the database holds.
func (l *Log) storedCheckpoint(ctx context.Context) (Checkpoint, error) {
	c, err := storedHead(ctx, l.r, l.inst)
	if err != nil {
		return c, unavailable("audit", err)
	}
	if !c.valid(l.pub, l.inst) {
		return c, damaged("the head in the database is not signed with this key")
	}
	return c, nil
}
