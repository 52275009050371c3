// SPDX-License-Identifier: Apache-2.0

// Package audit is the append-only record of every call: who asked for what,
// when, under which policy, what held and what came of it.
//
// # The model
//
// A call is two records: its intent, committed to disk before anything runs
// ([Log.Begin]), and its outcome ([Entry.End]). An intent without an outcome
// is a call that still runs or was killed: it shows as unfinished, and nothing
// can run unrecorded. A refused call is both at once ([Log.Refuse]).
//
// Records lie in audit.db (SQLite). What a call said and printed (command
// line, code, the first 64 KiB of each stream) is content, kept by digest
// beside the records; values of environment variables and secrets are never
// taken, only names.
//
// # The chain
//
// A record's digest covers its number, time, entry and event, the link of the
// record before it, and the digest of its body. It is signed (Ed25519, key in
// audit.key, mode 0600); digest and signature together make its link. Because
// the chain is over digests, a body that retention dropped ([Log.Prune]) and
// content that was redacted ([Log.Redact]) leave it whole; each of the two is
// itself a record, so that nothing can be dropped by another way unseen.
//
// Calls that are recorded at one time share a transaction, its sync and the head's
// signature: 64 callers get some 9 000 records a second on the disk where one alone
// gets 1 400.
//
// The head (count and last link) is signed anew with each commit and kept
// twice: in the database, and in audit.head beside it. The first record, the genesis, holds the public key and an id of the installation, which every
// signature covers.
//
// # What it holds against
//
// The adversary is code in a sandbox and anyone who can write the files but
// does not have the key. [Log.Verify] finds what such a one edits, removes,
// reorders, inserts or cuts off, and names the record. [Log.Begin] makes the
// cheap part of that check each time and refuses to build on a damaged chain.
//
// It does not hold against who has the key: the uid that caisson runs as, and
// root. Without the key, putting back an older copy of audit.db is found by
// audit.head. Putting back older copies of both (SQLite's own log holds the heads of the
// last records), or deleting all, is found only against a checkpoint that was kept
// elsewhere ([Log.Checkpoint], and the last line of a JSON export). A digest of short
// content can be guessed: redaction takes the content away, not the means to confirm a
// guess.
//
// # An older caisson's tail
//
// Up to layout 2 of the database, short runs appended to a file of their own, audit.tail.
// Open moves what such a file holds into the database, once, and removes the file.
package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// The files of a log, in the state directory.
const (
	dbFile   = "audit.db"
	keyFile  = "audit.key"
	headFile = "audit.head"
)

// Options say where a log is. Only Dir is needed.
type Options struct {
	// Dir is the state directory: it exists, is private, and was checked
	// (internal/store).
	Dir string
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Rand gives keys and ids; crypto/rand when nil.
	Rand io.Reader
	// Reserve is disk space for the ends of what runs: where there is no other they are
	// written in it, and nothing begins until it is whole again. nil is none.
	Reserve Reserve
	// ReadOnly is for readers: nothing is made, and Begin, Refuse, Prune and
	// Redact fail. A log that does not exist is ErrNotFound.
	ReadOnly bool
}

// Reserve is disk space that is kept for when there is no other; see store.Reserve.
type Reserve interface {
	// Whole says whether all of it is there.
	Whole() bool
	// Spend gives it up while do runs, and returns do's error.
	Spend(do func() error) error
}

// Log is an open record. It is safe for use by many goroutines, and many
// processes may have the same one open.
type Log struct {
	dir  string
	now  func() time.Time
	rand io.Reader

	wrote atomic.Pointer[func(account string, bytes int64)] // see Meter

	w *sql.DB // one connection; nil when read-only
	r *sql.DB
	// still says that r takes the record for one without writers, where nothing
	// can be written.
	still bool

	key  ed25519.PrivateKey // nil when it cannot be read
	pub  ed25519.PublicKey  // nil then too
	inst string             // the installation, from the genesis

	// broken is why nothing may be appended; readers still work, so that
	// Verify can say more.
	broken error

	reserve Reserve // nil without

	good    atomic.Pointer[Checkpoint] // the last one whose signature was right
	seen    atomic.Pointer[seenHead]   // the last line of audit.head that was good
	known   known                      // what the writer's connection need not read again
	settled settled                    // what the writer's connection committed last

	// behind is why audit.tail was not taken over; readers return it behind what the
	// database holds.
	behind error

	group    group  // of those who append at one time
	onCommit func() // for tests: called for each transaction
	onLook   func() // for tests: called between the looks for the files
	onBusy   func() // for tests: called when the database was found locked
}

// Open opens the log of a state directory and makes it where there is none.
//
// A log that was tampered with opens: Verify tells what is wrong, and Begin
// refuses. Errors are *sandbox.Error: ErrUnavailable when files cannot be made
// or read (full disk, not a database), ErrUnsupported when a newer caisson
// made it, ErrNotFound with Options.ReadOnly.
func Open(ctx context.Context, o Options) (*Log, error) {
	l := &Log{dir: o.Dir, now: o.Now, rand: o.Rand, reserve: o.Reserve}
	if l.now == nil {
		l.now = time.Now
	}
	if l.rand == nil {
		l.rand = rand.Reader
	}
	if err := l.open(ctx, o.ReadOnly); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Log) open(ctx context.Context, readOnly bool) error {
	// The later one first: another process may be making both meanwhile.
	headed := exists(l.path(headFile))
	if l.onLook != nil {
		l.onLook()
	}
	made := exists(l.path(dbFile))
	if headed && !made {
		return damaged("audit.db is gone from " + l.dir + ", but audit.head is there")
	}
	if !made && readOnly {
		return l.nothingYet()
	}
	if err := l.loadKey(!made); err != nil {
		return err
	}
	if !readOnly {
		if err := l.openWriter(ctx); err != nil {
			return err
		}
	}
	l.r = l.connect("mode=ro", 0) // a Query asks for more while it is open
	err := l.readGenesis(ctx, headed)
	if readOnly && unwritable(err) && l.whole() {
		l.still = true
		l.reread()
		err = l.readGenesis(ctx, headed)
	}
	if err == nil && exists(l.path(tailFile)) {
		err = l.openTail(ctx, readOnly)
	}
	return err
}

// whole says whether all of the database is in audit.db, and nothing in SQLite's log.
func (l *Log) whole() bool {
	info, err := os.Stat(l.path(dbFile) + "-wal")
	return errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0
}

// reread has the database be read anew, as it lies there: SQLite cannot make the files
// by which readers know of writers, nor can writers.
func (l *Log) reread() {
	l.r.Close()
	l.r = l.connect("mode=ro&immutable=1", 0)
}

func (l *Log) nothingYet() error {
	return &sandbox.Error{Op: "audit", Kind: sandbox.ErrNotFound, Problem: "nothing has been recorded in " + l.dir,
		Hint: "it begins with the first run; CAISSON_STATE names another state directory"}
}

// Close gives the files back. Every record is durable when the call that wrote
// it returns, so a process about to end need not call Close: it spares the
// checkpoint of SQLite's log, some milliseconds of disk time.
func (l *Log) Close() error {
	var first error
	for _, db := range []*sql.DB{l.r, l.w} {
		if db == nil {
			continue
		}
		if err := db.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (l *Log) path(name string) string { return filepath.Join(l.dir, name) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
