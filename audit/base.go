// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
)

// settled is a head that this process committed, and the state of the database that it
// is the head of. It is its connection's: who has that may read and change it.
type settled struct {
	conn    any // the driver's; another one counts anew
	version uint32
	head    Checkpoint
}

// settle remembers what was just committed.
func (l *Log) settle(conn *sql.Conn, head Checkpoint) {
	l.settled = settled{head: head}
	l.settled.conn, l.settled.version = state(conn)
}

// base is the head that a transaction builds on, checked.
//
// Where nothing was written since the last commit of this connection it is what
// that one left: SQLite would answer every question about it from memory. What lies
// in audit.head is looked at each time.
func (l *Log) base(ctx context.Context, conn *sql.Conn, tx querier) (head Checkpoint, err error) {
	if of, version := state(conn); of != nil && of == l.settled.conn && version == l.settled.version {
		head = l.settled.head
	} else if head, err = l.checkHead(ctx, tx); err != nil {
		return head, err
	}
	return head, l.checkCopy(ctx, tx, head)
}

// checkHead is the part of Verify that each commit can afford: the signed head
// is there, and the last record is the one it names.
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
	return head, nil
}

// checkCopy holds audit.head, which lags behind at most, against the head.
func (l *Log) checkCopy(ctx context.Context, q querier, head Checkpoint) error {
	copied, err := l.readHead()
	if errors.Is(err, os.ErrNotExist) && head.Count == 1 {
		// The maker of the record died before it made the file, or is at it.
		return l.makeHead(head)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return damaged("audit.head is gone")
	case errors.Is(err, errHeadDamaged):
		return damaged(err.Error())
	case err != nil:
		return err
	case copied.Count > head.Count:
		return damaged(fmt.Sprintf("audit.head has seen %d records, and there are %d", copied.Count, head.Count))
	}
	if copied.Count == head.Count && copied.Link == head.Link {
		return nil // the usual case
	}
	return onChain(ctx, q, copied)
}

// headAndLast is what a commit builds on, in one question, since preparing it is
// most of what one costs: the head in the database, not yet checked, the number
// of the last record, and of the one that the head names what its link is made
// of.
func headAndLast(ctx context.Context, q querier, installation string) (head Checkpoint, last int64, named record, err error) {
	var count, at int64
	var maximum sql.NullInt64
	var link, sig []byte
	err = q.QueryRowContext(ctx, `SELECT h.count, h.link, h.at, h.signature, (SELECT max(seq) FROM records), r.digest, r.signature
		FROM head AS h LEFT JOIN records AS r ON r.seq = h.count WHERE h.one = 1`).Scan(&count, &link, &at, &sig, &maximum, &named.digest, &named.signature)
	return newHead(installation, count, link, at, sig), maximum.Int64, named, err
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
