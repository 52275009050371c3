// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Key is who asks. What it may have is its policy's and its profile's to say;
// both are names that the operator gave.
type Key struct {
	ID      string    `json:"id"` // "k" and 10 of 0-9a-z; no secret
	Name    string    `json:"name"`
	Policy  string    `json:"policy,omitempty"`
	Profile string    `json:"profile,omitempty"`
	Created time.Time `json:"created"`
	Revoked time.Time `json:"revoked,omitzero"`

	// Owner, when not empty, says that this is no key, but stands for the owner of this
	// host, who may ask for what no key may, and is what records call that one. It is not
	// kept.
	Owner string `json:"-"`
}

// Actor is the key's name in records.
func (k *Key) Actor() string {
	if k.Owner != "" {
		return k.Owner
	}
	if k.Name != "" {
		return "key:" + k.Name
	}
	return "key:" + k.ID
}

// TokenPrefix begins every key that is made here: what E2B's SDKs expect.
const TokenPrefix = "e2b_"

// NewToken makes a key: the prefix and 40 lower-case hex digits, 160 random
// bits.
func NewToken() string {
	b := make([]byte, 20)
	rand.Read(b)
	return TokenPrefix + hex.EncodeToString(b)
}

// hash is what is kept of a token. It is as random as a hash can be, so nothing
// slower is needed.
func hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// AddKey keeps a key. The caller shows token to whom it is for, once: it
// cannot be had again.
//
// ErrConflict is that a valid key is already called so: records know a key by that.
func (r *DB) AddKey(ctx context.Context, k Key, token string) error {
	err := r.db.Update(ctx, func(tx *sql.Tx) error {
		var same int
		const called = "SELECT count(*) FROM keys WHERE revoked IS NULL AND ? <> '' AND (name = ? OR name = '' AND id = ?)"
		switch err := tx.QueryRowContext(ctx, called, k.Name, k.Name, k.Name).Scan(&same); {
		case err != nil:
			return err
		case same > 0:
			return &sandbox.Error{Op: "key " + k.Name, Kind: sandbox.ErrConflict, Problem: "there is one of this name", Hint: "take another name, or revoke that one first"}
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO keys (id, hash, name, policy, profile, created) VALUES (?, ?, ?, ?, ?, ?)",
			k.ID, hash(token), k.Name, k.Policy, k.Profile, k.Created.UnixMilli())
		return err
	})
	return r.db.Failed("write", err)
}

const keyColumns = "id, name, policy, profile, created, coalesce(revoked, 0)"

func scanKey(row interface{ Scan(...any) error }, more ...any) (*Key, error) {
	var k Key
	var created, revoked int64
	if err := row.Scan(append([]any{&k.ID, &k.Name, &k.Policy, &k.Profile, &created, &revoked}, more...)...); err != nil {
		return nil, err
	}
	k.Created = time.UnixMilli(created).UTC()
	if revoked != 0 {
		k.Revoked = time.UnixMilli(revoked).UTC()
	}
	return &k, nil
}

// KeyOf finds the key that a token is. An unknown token and a revoked key are
// the same ErrDenied.
func (r *DB) KeyOf(ctx context.Context, token string) (*Key, error) {
	want := hash(token)
	var have []byte
	k, err := scanKey(r.db.QueryRowContext(ctx, "SELECT "+keyColumns+", hash FROM keys WHERE hash = ?", want), &have)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, errUnknownKey()
	case err != nil:
		return nil, r.db.Failed("read", err)
	}
	// The look-up was by hash, so its time tells nothing about a token. This
	// holds whatever the database does with collations and indexes.
	if subtle.ConstantTimeCompare(want, have) != 1 || !k.Revoked.IsZero() {
		return nil, errUnknownKey()
	}
	return k, nil
}

// KeyByID finds a key, a revoked one too, by what is no secret.
func (r *DB) KeyByID(ctx context.Context, id string) (*Key, error) {
	k, err := scanKey(r.db.QueryRowContext(ctx, "SELECT "+keyColumns+" FROM keys WHERE id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errUnknownKey()
	}
	return k, r.db.Failed("read", err)
}

func errUnknownKey() error {
	return &sandbox.Error{Op: "key", Kind: sandbox.ErrDenied, Problem: "it is not known", Hint: "make one with caisson keys create", Rule: "built-in: keys"}
}

// Keys lists all keys, also revoked ones, oldest first.
func (r *DB) Keys(ctx context.Context) ([]*Key, error) {
	rows, err := r.db.QueryContext(ctx, "SELECT "+keyColumns+" FROM keys ORDER BY created, id")
	if err != nil {
		return nil, r.db.Failed("read", err)
	}
	defer rows.Close()
	var out []*Key
	for rows.Next() {
		k, err := scanKey(rows)
		if err != nil {
			return nil, r.db.Failed("read", err)
		}
		out = append(out, k)
	}
	return out, r.db.Failed("read", rows.Err())
}

// RevokeKey makes a key invalid, named by its ID or by its name where only one
// key that is valid has it. ErrNotFound when there is none, ErrConflict when
// there are several.
func (r *DB) RevokeKey(ctx context.Context, which string, now time.Time) (*Key, error) {
	keys, err := r.Keys(ctx)
	if err != nil {
		return nil, err
	}
	var found []*Key
	for _, k := range keys {
		if k.Revoked.IsZero() && (k.ID == which || k.Name == which) {
			found = append(found, k)
		}
	}
	switch {
	case len(found) == 0:
		return nil, &sandbox.Error{Op: "key " + which, Kind: sandbox.ErrNotFound, Problem: "there is none, or it is revoked", Hint: "see caisson keys ls"}
	case len(found) > 1:
		return nil, &sandbox.Error{Op: "key " + which, Kind: sandbox.ErrConflict, Problem: "several have this name", Hint: "name it by its ID, from caisson keys ls"}
	}
	k := found[0]
	k.Revoked = now.UTC()
	_, err = r.db.ExecContext(ctx, "UPDATE keys SET revoked = ? WHERE id = ?", now.UnixMilli(), k.ID)
	return k, r.db.Failed("write", err)
}

// NewID is letter and n digits of base 36 that cannot be guessed.
func NewID(letter string, n int) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	var b strings.Builder
	b.WriteString(letter)
	for buf := make([]byte, 64); ; {
		rand.Read(buf)
		for _, c := range buf {
			if c >= 252 { // 7 * 36: each digit is as likely as any other
				continue
			}
			b.WriteByte(digits[c%36])
			if n--; n == 0 {
				return b.String()
			}
		}
	}
}
