// SPDX-License-Identifier: Apache-2.0

// Package registry keeps what has to outlive a daemon: which sandboxes there
// are and how each stands, the keys of those who may ask for them, and what each of
// these has of late added to the audit log.
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
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/internal/store"
)

// file is the database's name in the state directory.
const file = "registry.db"

//go:embed migrations/*.sql
var migrations embed.FS

// DB is an open registry. It may be used from many goroutines.
type DB struct {
	db      *store.DB
	reserve Reserve
}

// Reserve is disk space that is kept for when there is no other; see store.Reserve.
type Reserve interface {
	// Spend gives it up while do runs, and returns do's error.
	Spend(do func() error) error
}

// SetReserve lets the ends of sandboxes be written where the disk is full. It is
// called before the registry is used.
func (r *DB) SetReserve(s Reserve) { r.reserve = s }

// Open opens the registry of a state directory and makes it where it is
// missing. Errors are ErrUnavailable, and ErrUnsupported for one that a newer
// caisson has written.
func Open(ctx context.Context, dir string) (*DB, error) { return open(ctx, dir, false) }

// Look is Open for who wants to know what there is: where the registry is missing, an
// empty one stands for it, and none is made.
func Look(ctx context.Context, dir string) (*DB, error) { return open(ctx, dir, true) }

// Here says whether a state directory has a registry. One that cannot be told is there.
func Here(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, file))
	return !errors.Is(err, fs.ErrNotExist)
}

func open(ctx context.Context, dir string, look bool) (*DB, error) {
	db, err := store.OpenDatabase(ctx, store.DatabaseOptions{Path: filepath.Join(dir, file), Commits: store.Lazy,
		Migrations: migrations, Problem: "the registry cannot be used", Look: look})
	if err != nil {
		return nil, err
	}
	return &DB{db: db}, nil
}

// Close closes the registry.
func (r *DB) Close() error { return r.db.Close() }

// Secret returns 32 random bytes that belong to this registry and to name. They
// are made when they are first asked for.
func (r *DB) Secret(ctx context.Context, name string) ([]byte, error) { return r.db.Secret(ctx, name) }
