// SPDX-License-Identifier: Apache-2.0

// Package registry keeps what has to outlive a daemon: which sandboxes there
// are and how each stands, and the keys of those who may ask for them.
//
// It is one SQLite file, registry.db, in the state directory, private to its
// owner. A change that was answered survives the daemon's SIGKILL; the last
// ones may be lost when the host loses power, with the sandboxes they are about.
// Several processes may have it open; that only one of them runs sandboxes is
// package session's to see to.
//
// Of a key only its SHA-256 is kept. The variables that a sandbox was made with
// are in its row, because it may be resumed, and nowhere else: no log, no
// record, no list has them.
package registry

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver

	"github.com/caisson-run/caisson/sandbox"
)

// file is the database's name in the state directory.
const file = "registry.db"

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are applied in order; PRAGMA user_version says how many were.
var migrations = []string{"migrations/0001_sandboxes.sql", "migrations/0002_snapshots.sql", "migrations/0003_rates.sql"}

// DB is an open registry. It may be used from many goroutines.
type DB struct {
	db   *sql.DB
	path string
}

// Open opens the registry of a state directory and makes it where it is
// missing. Errors are ErrUnavailable, and ErrUnsupported for one that a newer
// caisson has written.
func Open(ctx context.Context, dir string) (*DB, error) {
	r := &DB{path: filepath.Join(dir, file)}
	// Made here, so that it is private from the start; SQLite gives its other
	// files the same mode.
	f, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, r.failed("open", err)
	}
	f.Close()
	path := filepath.ToSlash(r.path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	// One connection: SQLite has one writer, and what is read here takes
	// microseconds. In WAL mode with synchronous=normal a commit waits for no
	// disk; see the package comment for what that means.
	dsn := (&url.URL{Scheme: "file", Path: path}).String() + "?_txlock=immediate&_pragma=journal_mode(wal)" +
		"&_pragma=busy_timeout(10000)&_pragma=synchronous(normal)&_pragma=secure_delete(on)&_pragma=trusted_schema(off)"
	if r.db, err = sql.Open("sqlite", dsn); err != nil {
		return nil, r.failed("open", err)
	}
	r.db.SetMaxOpenConns(1)
	if err := r.migrate(ctx); err != nil {
		r.db.Close()
		return nil, r.failed("open", err)
	}
	return r, nil
}

// Close closes the registry.
func (r *DB) Close() error { return r.db.Close() }

// failed is an error for people.
func (r *DB) failed(op string, err error) error {
	var mine *sandbox.Error
	if err == nil || errors.As(err, &mine) {
		return err
	}
	return &sandbox.Error{Op: op + " " + r.path, Kind: sandbox.ErrUnavailable, Problem: "the registry cannot be used", Cause: err,
		Hint: "see whether the disk is full, and whether the state directory is on a local file system"}
}

func (r *DB) migrate(ctx context.Context) error {
	return r.update(ctx, func(tx *sql.Tx) error {
		var have int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
			return err
		}
		if have < 0 || have > len(migrations) {
			return &sandbox.Error{Op: "open " + r.path, Kind: sandbox.ErrUnsupported, Hint: "use the newer caisson",
				Problem: fmt.Sprintf("its layout %d is newer than this caisson knows (%d)", have, len(migrations))}
		}
		for _, name := range migrations[have:] {
			text, err := migrationFiles.ReadFile(name)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, string(text)); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", len(migrations)))
		return err
	})
}

// update runs do in a transaction.
func (r *DB) update(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Secret returns 32 random bytes that belong to this registry and to name. They
// are made when they are first asked for.
func (r *DB) Secret(ctx context.Context, name string) ([]byte, error) {
	fresh := make([]byte, 32)
	rand.Read(fresh)
	var value []byte
	err := r.update(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", name, fresh); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT value FROM secrets WHERE name = ?", name).Scan(&value)
	})
	return value, r.failed("read", err)
}
