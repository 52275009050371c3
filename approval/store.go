// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"crypto/sha256"
	"embed"
	"path/filepath"
	"sync"
	"time"

	"github.com/caisson-run/caisson/internal/store"
)

// file is the database's name in the state directory.
const file = "approvals.db"

//go:embed migrations/*.sql
var migrations embed.FS

// Options say where requests are kept. Only Dir is needed.
type Options struct {
	// Dir is the state directory: it exists, is private, and was checked
	// (internal/store).
	Dir string
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Look makes no file: where it is missing, there are no requests and no approvers.
	Look bool
}

// Store keeps requests and approvers. It may be used from many goroutines, and
// many processes may have the same one open.
type Store struct {
	db  *store.DB
	now func() time.Time

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when this process changes a request
}

// Open opens the requests of a state directory, and makes the file where it is
// missing, but for Look. Errors are ErrUnavailable, and ErrUnsupported for what a newer
// caisson has written.
func Open(ctx context.Context, o Options) (*Store, error) {
	// Durable: an approval that was used must not be unused again after the power
	// was lost.
	db, err := store.OpenDatabase(ctx, store.DatabaseOptions{Path: filepath.Join(o.Dir, file), Commits: store.Durable,
		Migrations: migrations, Problem: "approvals cannot be kept", Look: o.Look})
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, now: o.Now, changed: make(chan struct{})}
	if s.now == nil {
		s.now = time.Now
	}
	return s, nil
}

// Close closes it.
func (s *Store) Close() error { return s.db.Close() }

// SealKey is what Seal takes: 32 random bytes that belong to this store.
func (s *Store) SealKey(ctx context.Context) ([]byte, error) { return s.db.Secret(ctx, "seal") }

// hashOf is what is kept of a token or a credential. Both are as random as a hash
// can be, so nothing slower is needed.
func hashOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
