// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/caisson-run/caisson/sandbox"
)

// file is the database's name in the state directory.
const file = "approvals.db"

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are applied in order; PRAGMA user_version says how many were.
var migrations = []string{"migrations/0001_approvals.sql"}

// Options say where requests are kept. Only Dir is needed.
type Options struct {
	// Dir is the state directory: it exists, is private, and was checked
	// (internal/store).
	Dir string
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Store keeps requests and approvers. It may be used from many goroutines, and
// many processes may have the same one open.
type Store struct {
	db   *sql.DB
	path string
	now  func() time.Time

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when this process changes a request
}

// Open opens the requests of a state directory, and makes the file where it is
// missing. Errors are ErrUnavailable, and ErrUnsupported for what a newer
// caisson has written.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{path: filepath.Join(o.Dir, file), now: o.Now, changed: make(chan struct{})}
	if s.now == nil {
		s.now = time.Now
	}
	// Made here, so that it is private from the start; SQLite gives its other
	// files the same mode.
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, s.failed("open", err)
	}
	f.Close()
	path := filepath.ToSlash(s.path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	// synchronous=full: an approval that was used must not be unused again after
	// the power was lost.
	dsn := (&url.URL{Scheme: "file", Path: path}).String() + "?_txlock=immediate&_pragma=journal_mode(wal)" +
		"&_pragma=busy_timeout(10000)&_pragma=synchronous(full)&_pragma=secure_delete(on)&_pragma=trusted_schema(off)"
	if s.db, err = sql.Open("sqlite", dsn); err != nil {
		return nil, s.failed("open", err)
	}
	s.db.SetMaxOpenConns(1)
	if err := s.migrate(ctx); err != nil {
		s.db.Close()
		return nil, s.failed("open", err)
	}
	return s, nil
}

// Close closes it.
func (s *Store) Close() error { return s.db.Close() }

// failed is an error for people.
func (s *Store) failed(op string, err error) error {
	var mine *sandbox.Error
	if err == nil || errors.As(err, &mine) {
		return err
	}
	return &sandbox.Error{Op: op + " " + s.path, Kind: sandbox.ErrUnavailable, Problem: "approvals cannot be kept", Cause: err,
		Hint: "see whether the disk is full, and whether the state directory is on a local file system"}
}

func (s *Store) migrate(ctx context.Context) error {
	return s.update(ctx, func(tx *sql.Tx) error {
		var have int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
			return err
		}
		if have < 0 || have > len(migrations) {
			return &sandbox.Error{Op: "open " + s.path, Kind: sandbox.ErrUnsupported, Hint: "use the newer caisson",
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

// update runs do in a transaction that no other process can come between.
func (s *Store) update(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// SealKey is what Seal takes: 32 random bytes that belong to this store.
func (s *Store) SealKey(ctx context.Context) ([]byte, error) {
	fresh := make([]byte, 32)
	rand.Read(fresh)
	var value []byte
	err := s.update(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO secrets (name, value) VALUES ('seal', ?) ON CONFLICT DO NOTHING", fresh); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT value FROM secrets WHERE name = 'seal'").Scan(&value)
	})
	return value, s.failed("read", err)
}

// hashOf is what is kept of a token or a credential. Both are as random as a hash
// can be, so nothing slower is needed.
func hashOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
