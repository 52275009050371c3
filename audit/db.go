// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the files whose number is above PRAGMA user_version, in order.
var migrations = []string{"migrations/0001_chain.sql", "migrations/0002_tail.sql", "migrations/0003_notail.sql"}

// connect makes a pool of at most conns connections (0: as many as are asked
// for); none is opened before it is needed.
//
// WAL and synchronous=FULL cost one sync for each commit. secure_delete
// overwrites what redaction deletes; trusted_schema=off keeps a schema of
// another author from running functions. The checkpoint comes early (200
// pages): a process that does not close the log leaves its WAL to the next one,
// which reads it through before its first query.
func (l *Log) connect(params string, conns int) *sql.DB {
	path := filepath.ToSlash(l.path(dbFile))
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	dsn := (&url.URL{Scheme: "file", Path: path}).String() + "?" + params +
		"&_pragma=busy_timeout(100)&_pragma=synchronous(full)&_pragma=secure_delete(on)" +
		"&_pragma=trusted_schema(off)&_pragma=wal_autocheckpoint(200)"
	// The driver is registered under this name by its package; Open fails for
	// an unknown name only.
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		panic(err)
	}
	db.SetMaxOpenConns(conns)
	return db
}

// openWriter opens the database for writing and brings it up to date.
func (l *Log) openWriter(ctx context.Context) error {
	// Made here, so that it is private from the start; SQLite gives its other
	// files the same mode.
	f, err := os.OpenFile(l.path(dbFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return unavailable("open "+l.path(dbFile), err)
	}
	f.Close()
	l.w = l.connect("_txlock=immediate&_pragma=journal_mode(wal)", 1)
	return unavailable("open "+l.path(dbFile), l.patiently(ctx, func() error { return l.migrate(ctx) }))
}

// busyWait is how long a writer waits for its turn.
const busyWait = 10 * time.Second

// maxWait is busyWait, but where tests have many processes write at once: who has the
// turn may have no processor for longer.
var maxWait = busyWait

// patiently calls do until it does not find the database locked, for busyWait
// or as long as ctx lives. SQLite's own wait would not look at ctx; it is set
// to 100 ms, so that this loop is not a busy one.
func (l *Log) patiently(ctx context.Context, do func() error) error {
	for began := time.Now(); ; {
		err := do()
		if !isBusy(err) || time.Since(began) > maxWait {
			return err
		}
		if l.onBusy != nil {
			l.onBusy()
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// migrate applies the migrations that are missing. Two processes that open a
// new directory at once meet at the write lock: the second finds it done.
func (l *Log) migrate(ctx context.Context) error {
	version, err := l.version(ctx, l.w)
	if err != nil || version == len(migrations) {
		return err
	}
	if l.broken != nil {
		return l.broken
	}
	tx, err := l.w.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if version, err = l.version(ctx, tx); err != nil {
		return err
	}
	for i := version; i < len(migrations); i++ {
		text, err := migrationFiles.ReadFile(migrations[i])
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, string(text)); err != nil {
			return err
		}
	}
	if version < len(migrations) {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", len(migrations))); err != nil {
			return err
		}
	}
	if version > 0 {
		return tx.Commit()
	}
	if exists(l.path(headFile)) {
		return damaged("audit.db is empty, but audit.head is there")
	}
	head, err := l.genesis(ctx, tx)
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if err := syncDir(l.dir); err != nil {
		return err
	}
	return l.makeHead(head)
}

// querier is what *sql.DB, *sql.Conn and *sql.Tx have in common.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

func (l *Log) version(ctx context.Context, q querier) (int, error) {
	var v int
	if err := q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
		return 0, err
	}
	if v < 0 || v > len(migrations) {
		return 0, &sandbox.Error{Op: "open " + l.path(dbFile), Kind: sandbox.ErrUnsupported,
			Problem: fmt.Sprintf("its layout %d is newer than this caisson knows (%d)", v, len(migrations)), Hint: "use the newer caisson"}
	}
	return v, nil
}

// schemas are, after each migration, the statements that the database was made by.
var schemas = sync.OnceValues(func() (all [][]string, err error) {
	var list []string
	for _, name := range migrations {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for statement := range strings.SplitSeq(string(text), ";") {
			if i := strings.Index(statement, "CREATE "); i >= 0 {
				list = append(list, statement[i:])
			}
			if _, table, ok := strings.Cut(statement, "DROP TABLE "); ok {
				list = slices.DeleteFunc(list, func(s string) bool { return strings.HasPrefix(s, "CREATE TABLE "+table+" ") })
			}
		}
		all = append(all, slices.Clone(list))
	}
	return all, nil
})

// checkSchema says whether the database was made by the migrations and nothing
// else: a trigger or a view of another author would act with our rights.
func checkSchema(ctx context.Context, q querier) error { return checkLayout(ctx, q, len(migrations)) }

// checkOwnSchema is checkSchema of the layout that the database has: an older one, for
// a reader of what no writer of this caisson has opened yet.
func (l *Log) checkOwnSchema(ctx context.Context, q querier) error {
	version, err := l.version(ctx, q)
	if err != nil {
		return err
	}
	return checkLayout(ctx, q, max(version, 1))
}

func checkLayout(ctx context.Context, q querier, version int) error {
	all, err := schemas()
	if err != nil {
		return err
	}
	want := map[string]bool{}
	for _, s := range all[version-1] {
		want[s] = true
	}
	rows, err := q.QueryContext(ctx, "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return err
		}
		if !want[text] {
			return fmt.Errorf("%q in the database is not of caisson's making", name)
		}
		delete(want, text)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if len(want) > 0 {
		return fmt.Errorf("%d of its tables and indexes are missing", len(want))
	}
	return nil
}

// genesis appends the first record.
func (l *Log) genesis(ctx context.Context, tx *sql.Tx) (Checkpoint, error) {
	id := make([]byte, 16)
	if _, err := io.ReadFull(l.rand, id); err != nil {
		return Checkpoint{}, err
	}
	l.inst = hex.EncodeToString(id)
	body, err := encode(genesisBody{Version: 1, Installation: l.inst, PublicKey: hex.EncodeToString(l.pub)})
	if err != nil {
		return Checkpoint{}, err
	}
	r := record{entry: eventGenesis, event: eventGenesis, body: body}
	return l.append(ctx, tx, Checkpoint{Link: hex.EncodeToString(make([]byte, 32))}, &r)
}

// readGenesis learns the installation and holds the key against it. headed says that
// audit.head was there before the database was read.
func (l *Log) readGenesis(ctx context.Context, headed bool) error {
	op := "read " + l.path(dbFile)
	db := l.r
	if l.w != nil {
		db = l.w // spares a run a second connection
	}
	version, err := l.readVersion(ctx, db)
	if err != nil {
		return unavailable(op, err)
	}
	if version == 0 { // a reader's; a writer has migrated
		if headed {
			return damaged("audit.db is empty, but audit.head is there")
		}
		return l.nothingYet()
	}
	var body []byte
	var g genesisBody
	err = l.patiently(ctx, func() error {
		return db.QueryRowContext(ctx, "SELECT body FROM records WHERE seq = 1 AND event = 'genesis'").Scan(&body)
	})
	if passing(ctx, err) {
		return unavailable(op, err) // which says nothing of the record
	}
	if err == nil {
		err = decode(body, &g)
	}
	if err != nil {
		l.setBroken(damaged("the first record cannot be read"))
		return nil // for Verify to describe
	}
	l.inst = g.Installation
	pub, err := hex.DecodeString(g.PublicKey)
	switch {
	case err != nil || len(pub) != ed25519.PublicKeySize:
		l.setBroken(damaged("the first record holds no key"))
	case l.pub == nil:
		l.pub = pub // no key file: the record's own word is all there is
	case !l.pub.Equal(ed25519.PublicKey(pub)):
		l.setBroken(damaged("audit.key is not the key that this record began with"))
	}
	return nil
}

// readVersion is version for who opens the database. It may have to wait: another
// process may be reading SQLite's log after one that was killed, or taking it away.
func (l *Log) readVersion(ctx context.Context, db *sql.DB) (version int, err error) {
	read := func() (err error) { version, err = l.version(ctx, db); return err }
	if err = l.patiently(ctx, read); isUndone(err) {
		if err = l.undo(ctx); err == nil {
			err = l.patiently(ctx, read)
		}
	}
	return version, err
}

// undo takes back what a process was about when it was killed while it made the
// database: a reader may not. Once that is made SQLite keeps its log in another file.
func (l *Log) undo(ctx context.Context) error {
	db := l.connect("mode=rw", 1)
	defer db.Close()
	return l.patiently(ctx, func() error { _, err := l.version(ctx, db); return err })
}

func (l *Log) setBroken(err error) {
	if l.broken == nil {
		l.broken = err
	}
}
