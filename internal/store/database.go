// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// Durability is what a commit waits for.
type Durability string

const (
	// Durable commits are on the disk when they return. It is the zero value's
	// meaning, too.
	Durable Durability = "full"
	// Lazy commits survive this process's SIGKILL, and may be lost, the last ones,
	// when the host loses power. They wait for no disk.
	Lazy Durability = "normal"
)

// DatabaseOptions describe a SQLite file of a state directory. Path, Migrations and Problem
// are needed. The audit log opens its own file (package audit): it has readers beside its
// writer, a head in another file, and looks at its schema before it uses it.
type DatabaseOptions struct {
	// Path is the file, in a directory that exists, is private and was checked.
	Path string
	// Commits is Durable when empty.
	Commits Durability
	// Migrations are SQL files, applied in the order of their names. PRAGMA
	// user_version says how many were; one that was released is never changed.
	Migrations fs.FS
	// Problem is what an error tells people, such as "the registry cannot be used".
	Problem string
	// Look makes no file: where there is none, an empty database in memory stands for
	// it. It is for who wants to know what there is.
	Look bool
}

// DB is an open database. It may be used from many goroutines, and several
// processes may have one file open.
type DB struct {
	*sql.DB
	o DatabaseOptions
}

// OpenDatabase opens a SQLite file that is private to its owner, and brings it up to the
// newest layout. It makes the file where it is missing, but for Look. Errors are
// ErrUnavailable, and ErrUnsupported for a file that a newer caisson has written.
func OpenDatabase(ctx context.Context, o DatabaseOptions) (*DB, error) {
	if o.Commits == "" {
		o.Commits = Durable
	}
	d := &DB{o: o}
	// Made here, so that it is private from the start; SQLite gives its other
	// files the same mode.
	how := os.O_RDWR
	if !o.Look {
		how |= os.O_CREATE
	}
	name := dsn(o)
	f, err := os.OpenFile(o.Path, how, 0o600)
	switch {
	case o.Look && errors.Is(err, fs.ErrNotExist):
		name += "&mode=memory"
	case err != nil:
		return nil, d.Failed("open", err)
	default:
		f.Close()
	}
	if d.DB, err = sql.Open("sqlite", name); err != nil {
		return nil, d.Failed("open", err)
	}
	// One connection: SQLite has one writer, and what is read takes microseconds.
	d.SetMaxOpenConns(1)
	if err := d.migrate(ctx); err != nil {
		d.Close()
		return nil, d.Failed("open", err)
	}
	return d, nil
}

// dsn is how the driver is told of a file. secure_delete overwrites what is
// deleted; trusted_schema=off keeps a schema of another author from running
// functions; every transaction takes the write lock when it begins, so that none
// fails halfway because another was faster.
func dsn(o DatabaseOptions) string {
	path := filepath.ToSlash(o.Path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String() + "?_txlock=immediate&_pragma=journal_mode(wal)" +
		"&_pragma=busy_timeout(10000)&_pragma=secure_delete(on)&_pragma=trusted_schema(off)&_pragma=synchronous(" + string(o.Commits) + ")"
}

// Failed is err for people, with what was tried; nil stays nil, and an error that
// is for people already stays what it is.
func (d *DB) Failed(op string, err error) error {
	var mine *sandbox.Error
	if err == nil || errors.As(err, &mine) {
		return err
	}
	return &sandbox.Error{Op: op + " " + d.o.Path, Kind: sandbox.ErrUnavailable, Problem: d.o.Problem, Cause: err,
		Hint: "see whether the disk is full, and whether the state directory is on a local file system"}
}

// Update runs do in a transaction that no other process can come between. It is
// committed when do returns nil.
func (d *DB) Update(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (d *DB) migrate(ctx context.Context) error {
	names, err := fs.Glob(d.o.Migrations, "migrations/*.sql") // sorted
	if err != nil {
		return err
	}
	return d.Update(ctx, func(tx *sql.Tx) error {
		var have int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
			return err
		}
		if have < 0 || have > len(names) {
			return &sandbox.Error{Op: "open " + d.o.Path, Kind: sandbox.ErrUnsupported, Hint: "use the newer caisson",
				Problem: fmt.Sprintf("its layout %d is newer than this caisson knows (%d)", have, len(names))}
		}
		for _, name := range names[have:] {
			text, err := fs.ReadFile(d.o.Migrations, name)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, string(text)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", len(names)))
		return err
	})
}

// Secret returns 32 random bytes that belong to this database and to name. They are
// made when they are first asked for. The table is secrets (name, value), of the
// migrations.
func (d *DB) Secret(ctx context.Context, name string) ([]byte, error) {
	fresh := make([]byte, 32)
	rand.Read(fresh)
	var value []byte
	err := d.Update(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", name, fresh); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT value FROM secrets WHERE name = ?", name).Scan(&value)
	})
	return value, d.Failed("read", err)
}
