// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
)

// Finding is one thing that is wrong with a record.
type Finding struct {
	Seq     int64  `json:"seq"`     // the record; 0 for the log as a whole
	Kind    string `json:"kind"`    // edited, removed, inserted, cut off, content, head, tail, key, database
	Problem string `json:"problem"` // a sentence
}

// String is "record 7: edited: …".
func (f Finding) String() string {
	if f.Seq == 0 {
		return f.Kind + ": " + f.Problem
	}
	return fmt.Sprintf("record %d: %s: %s", f.Seq, f.Kind, f.Problem)
}

// maxFindings bounds a report: one damage in a long chain can show at many records.
const maxFindings = 200

// Report is what Verify found.
type Report struct {
	Records  int64 `json:"records"`
	Pruned   int64 `json:"pruned"`   // records whose body retention dropped
	Redacted int64 `json:"redacted"` // pieces of content that were redacted

	Head     Checkpoint `json:"head"` // what is worth keeping elsewhere
	Findings []Finding  `json:"findings"`
	More     bool       `json:"more,omitempty"` // there were more findings than are listed
}

// OK says that nothing was found.
func (r *Report) OK() bool { return len(r.Findings) == 0 }

func (r *Report) add(seq int64, kind, format string, args ...any) {
	if len(r.Findings) == maxFindings {
		r.More = true
		return
	}
	r.Findings = append(r.Findings, Finding{seq, kind, fmt.Sprintf(format, args...)})
}

// Verify reads everything and says what was edited, removed, inserted or cut
// off, and where. Checkpoints that were kept elsewhere are held against the
// chain: they find that an older copy was put back. A damaged record is a
// Report with findings; an error means that it could not be read.
func (l *Log) Verify(ctx context.Context, kept ...Checkpoint) (Report, error) {
	// A chain that is whole up to the signed head covers all its signatures.
	// Only where it is not do they have to be checked one by one, 50 µs each:
	// they tell which record was made without the key.
	rep, err := l.verify(ctx, kept, false)
	if err != nil || rep.OK() {
		return rep, err
	}
	return l.verify(ctx, kept, true)
}

func (l *Log) verify(ctx context.Context, kept []Checkpoint, signatures bool) (Report, error) {
	var rep Report
	switch {
	case l.broken != nil:
		rep.add(0, "key", "%v", l.broken)
	case isDamage(l.behind):
		rep.add(0, "tail", "%s", problemOf(l.behind))
	case l.behind != nil:
		return rep, l.behind
	}
	// Read before the database: the file may lag behind it, never lead.
	copied, copyErr := l.readHead()
	tx, err := l.r.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return rep, unavailable("audit verify", err)
	}
	defer tx.Rollback()
	v := &verifier{log: l, rep: &rep, signatures: signatures && l.pub != nil, links: map[int64][]byte{}, content: map[string]int64{}, redacted: map[string]bool{}}
	for _, c := range append([]Checkpoint{copied}, kept...) {
		v.links[c.Count] = nil
	}
	for _, step := range []func(context.Context, *sql.Tx) error{v.database, v.chain, v.head, v.blobs} {
		if err := step(ctx, tx); err != nil {
			if ctx.Err() != nil {
				return rep, ctx.Err()
			}
			// What SQLite cannot read any more was damaged too.
			rep.add(0, "database", "it cannot be read: %v", err)
		}
	}
	v.copy(copied, copyErr)
	for _, c := range kept {
		v.kept(c)
	}
	return rep, nil
}

// verifier is one Verify.
type verifier struct {
	log        *Log
	rep        *Report
	signatures bool // check each record's

	last     *record          // the last record read
	links    map[int64][]byte // the links of the records that checkpoints name
	pruned   int64            // bodies up to here were dropped by Prune
	dropped  []int64          // records without a body
	content  map[string]int64 // digest → a record that refers to it
	redacted map[string]bool  // digests
}

// database checks what the chain cannot: the schema, and that indexes hold the
// rows they should, since Query trusts them.
func (v *verifier) database(ctx context.Context, tx *sql.Tx) error {
	if err := v.log.checkOwnSchema(ctx, tx); err != nil {
		v.rep.add(0, "database", "%v", err)
	}
	rows, err := tx.QueryContext(ctx, "PRAGMA integrity_check(20)")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err
		}
		if line != "ok" {
			v.rep.add(0, "database", "%s", line)
		}
	}
	return rows.Err()
}

// chain reads all records in order.
func (v *verifier) chain(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, "SELECT seq, at, entry, event, prev, body_digest, digest, signature, body FROM records ORDER BY seq")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		r := new(record)
		if err := rows.Scan(&r.seq, &r.at, &r.entry, &r.event, &r.prev, &r.bodyDigest, &r.digest, &r.signature, &r.body); err != nil {
			return err
		}
		v.record(r)
		v.last = r
	}
	for _, seq := range v.dropped {
		if seq > v.pruned {
			v.rep.add(seq, "removed", "its body is gone, and no retention dropped it")
		}
	}
	return rows.Err()
}

// record holds one record against itself, its signature and the one before.
func (v *verifier) record(r *record) {
	v.rep.Records++
	prevSeq, prevLink := int64(0), make([]byte, 32)
	if v.last != nil {
		prevSeq, prevLink = v.last.seq, v.last.link()
	}
	sound := true
	bad := func(kind, problem string) {
		v.rep.add(r.seq, kind, "%s", problem)
		sound = false
	}
	if r.body != nil && !bytes.Equal(sum(r.body), r.bodyDigest) {
		bad("edited", "its body is not what its digest says")
	}
	if !bytes.Equal(sum(r.canonical()), r.digest) {
		bad("edited", "its fields are not what its digest says, or it was moved here")
	}
	// The signature tells an honest record from one whose digests were computed
	// anew without the key.
	if v.signatures && !r.authentic(v.log.pub, v.log.inst) {
		bad("edited", "it is not signed with this key: edited, or inserted")
	}
	switch {
	case r.seq > prevSeq+1:
		v.rep.add(prevSeq+1, "removed", "%s", span(prevSeq+1, r.seq-1))
	case r.seq != prevSeq+1:
		bad("inserted", "its number is out of order")
	case sound && !bytes.Equal(r.prev, prevLink):
		bad("edited", "it does not follow the record before it: that one was changed, or records were reordered")
	}
	if (r.seq == 1) != (r.event == eventGenesis) {
		bad("edited", "only the first record is a genesis")
	}
	if _, named := v.links[r.seq]; named {
		v.links[r.seq] = r.link()
	}
	v.body(r, bad)
}

// body collects what a body says about other records and content.
func (v *verifier) body(r *record, bad func(kind, problem string)) {
	var err error
	switch {
	case r.body == nil && (r.event == eventIntent || r.event == eventOutcome || r.event == eventConnection):
		v.rep.Pruned++
		v.dropped = append(v.dropped, r.seq)
	case r.body == nil:
		bad("removed", "its body is gone")
	case r.event == eventIntent:
		var c Call
		if err = decode(r.body, &c); err == nil {
			v.refer(r.seq, c.Params, c.Argv, c.Code)
		}
	case r.event == eventOutcome:
		var e Ending
		if err = decode(r.body, &e); err == nil {
			v.refer(r.seq, e.Stdout, e.Stderr)
		}
	case r.event == eventConnection:
		err = decode(r.body, new(connectionBody)) // it refers to nothing
	case r.event == eventPrune:
		var p pruneBody
		if err = decode(r.body, &p); err == nil {
			v.pruned = max(v.pruned, min(p.Through, r.seq))
		}
	case r.event == eventRedact:
		var p redactBody
		if err = decode(r.body, &p); err == nil && !v.redacted[p.Content] {
			v.redacted[p.Content] = true
			v.rep.Redacted++
		}
	}
	if err != nil {
		bad("edited", "its body cannot be read")
	}
}

func (v *verifier) refer(seq int64, list ...*Content) {
	for _, c := range list {
		if d := c.blob(); d != "" {
			v.content[d] = seq
		}
	}
}

// head holds the chain against the signed head.
func (v *verifier) head(ctx context.Context, tx *sql.Tx) error {
	head, err := storedHead(ctx, tx, v.log.inst)
	if errors.Is(err, sql.ErrNoRows) {
		v.rep.add(0, "head", "the database holds no head")
		return nil
	}
	if err != nil {
		return err
	}
	v.rep.Head = head
	if !head.valid(v.log.pub, v.log.inst) {
		v.rep.add(0, "head", "the head in the database is not signed with this key")
		return nil
	}
	var last int64
	var link []byte
	if v.last != nil {
		last, link = v.last.seq, v.last.link()
	}
	switch {
	case last < head.Count:
		v.rep.add(last+1, "cut off", "%s", span(last+1, head.Count))
	case last > head.Count:
		v.rep.add(head.Count+1, "inserted", "the signed head ends before it")
	case hex.EncodeToString(link) != head.Link:
		v.rep.add(last, "edited", "it is not the record that the signed head ends with")
	}
	return nil
}

// copy holds the chain against audit.head.
func (v *verifier) copy(c Checkpoint, err error) {
	switch {
	case errors.Is(err, os.ErrNotExist) && v.rep.Records == 1:
	case errors.Is(err, os.ErrNotExist):
		v.rep.add(0, "head", "audit.head is gone, so it cannot be told whether the end was cut off")
	case err != nil:
		v.rep.add(0, "head", "%v", err)
	default:
		v.checkpoint(c, "audit.head")
	}
}

// kept holds the chain against a checkpoint from elsewhere.
func (v *verifier) kept(c Checkpoint) {
	if c.bare {
		v.checkpoint(c, "the head that was kept")
		return
	}
	if !c.valid(v.log.pub, v.log.inst) {
		v.rep.add(0, "head", "the checkpoint of %d records was not signed for this record", c.Count)
		return
	}
	v.checkpoint(c, "the checkpoint")
}

func (v *verifier) checkpoint(c Checkpoint, name string) {
	var last int64
	if v.last != nil {
		last = v.last.seq
	}
	switch {
	case c.Count > last:
		v.rep.add(last+1, "cut off", "%s: %s has seen them, so they were cut off or an older copy was put back", span(last+1, c.Count), name)
	case hex.EncodeToString(v.links[c.Count]) != c.Link:
		v.rep.add(c.Count, "edited", "it is not the record that %s has seen", name)
	}
}

// blobs holds the content against the records that refer to it.
func (v *verifier) blobs(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, "SELECT digest, content FROM blobs")
	if err != nil {
		return err
	}
	defer rows.Close()
	missing := maps.Clone(v.content)
	for rows.Next() {
		var digest, content []byte
		if err := rows.Scan(&digest, &content); err != nil {
			return err
		}
		name := hex.EncodeToString(digest)
		seq, known := v.content[name]
		switch {
		case !bytes.Equal(sum(content), digest):
			v.rep.add(seq, "content", "content %s is not what its digest says", name)
		case !known:
			v.rep.add(0, "content", "no record refers to content %s", name)
		case v.redacted[name]:
			v.rep.add(seq, "content", "content %s was redacted, and is there", name)
		}
		delete(missing, name)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if !v.redacted[name] {
			v.rep.add(missing[name], "content", "content %s is gone, and no redaction of it is recorded", name)
		}
	}
	return nil
}

// span names records in a sentence.
func span(from, to int64) string {
	if from == to {
		return fmt.Sprintf("record %d is missing", from)
	}
	return fmt.Sprintf("records %d to %d are missing", from, to)
}
