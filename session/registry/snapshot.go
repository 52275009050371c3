// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Snapshot is a sandbox as it was at one moment. Any number go on from it.
type Snapshot struct {
	// ID is 's' and 20 of 0-9a-z, Owner the ID of the key that it belongs to.
	ID      string    `json:"id"`
	Owner   string    `json:"owner"`
	Name    string    `json:"name,omitempty"` // the owner's; need not be the only one
	Created time.Time `json:"created"`
	// Kept is the directory that holds it, relative to the state directory's.
	Kept string `json:"kept"`
	// Bytes is how large that is, and Seal what is known of it.
	Bytes int64 `json:"bytes,omitempty"`
	Seal  *Seal `json:"seal,omitempty"`
	// Sandbox is what was written down.
	Sandbox *Sandbox `json:"sandbox"`
}

// PutSnapshot writes a new snapshot.
func (r *DB) PutSnapshot(ctx context.Context, s *Snapshot) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = r.db.ExecContext(ctx, "INSERT INTO snapshots (id, owner, created, body) VALUES (?, ?, ?, ?)",
		s.ID, s.Owner, s.Created.UnixMilli(), body)
	return r.db.Failed("write", err)
}

// GetSnapshot reads an owner's snapshot; ErrNotFound when it has none with the ID.
func (r *DB) GetSnapshot(ctx context.Context, owner, id string) (*Snapshot, error) {
	var body []byte
	err := r.db.QueryRowContext(ctx, "SELECT body FROM snapshots WHERE id = ? AND owner = ?", id, owner).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, sandbox.Errorf(sandbox.ErrNotFound, "snapshot", "there is none with this ID")
	}
	if err != nil {
		return nil, r.db.Failed("read", err)
	}
	s := &Snapshot{}
	return s, json.Unmarshal(body, s)
}

// Snapshots reads an owner's snapshots, newest first; those of all for "".
func (r *DB) Snapshots(ctx context.Context, owner string) ([]*Snapshot, error) {
	rows, err := r.db.QueryContext(ctx, "SELECT body FROM snapshots WHERE ? IN ('', owner) ORDER BY created DESC, id DESC", owner)
	if err != nil {
		return nil, r.db.Failed("read", err)
	}
	defer rows.Close()
	var out []*Snapshot
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			return nil, r.db.Failed("read", err)
		}
		s := &Snapshot{}
		if err := json.Unmarshal(body, s); err != nil {
			return nil, r.db.Failed("read", err)
		}
		out = append(out, s)
	}
	return out, r.db.Failed("read", rows.Err())
}

// GoesOn says whether a sandbox that has not ended, or one of a snapshot, was made of the
// image with a digest: it may go on with that.
func (r *DB) GoesOn(ctx context.Context, digest string) (goes bool, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT
		EXISTS (SELECT 1 FROM sandboxes WHERE ended IS NULL AND json_extract(CAST(body AS TEXT), '$.image_digest') = ?1) OR
		EXISTS (SELECT 1 FROM snapshots WHERE json_extract(CAST(body AS TEXT), '$.sandbox.image_digest') = ?1)`, digest).Scan(&goes)
	return goes, r.db.Failed("read", err)
}

// DropSnapshot forgets a snapshot, and says whether it was there.
func (r *DB) DropSnapshot(ctx context.Context, id string) (bool, error) {
	res, err := r.db.ExecContext(ctx, "DELETE FROM snapshots WHERE id = ?", id)
	if err != nil {
		return false, r.db.Failed("write", err)
	}
	n, err := res.RowsAffected()
	return n > 0, r.db.Failed("write", err)
}
