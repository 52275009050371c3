// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"database/sql"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Approver is a person who has a credential.
type Approver struct {
	ID      string    `json:"id"` // no secret
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Revoked time.Time `json:"revoked,omitzero"`
}

// CredentialPrefix begins every credential. No key of an agent begins so.
const CredentialPrefix = "approver_"

// Enroll makes an approver and returns their credential, which cannot be had
// again: its hash alone is kept. The first one is made by the owner of the
// state directory; every other is vouched for by one who is enrolled.
func (s *Store) Enroll(ctx context.Context, by Who, name string) (*Approver, string, error) {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, "", sandbox.Errorf(sandbox.ErrInvalid, "approver", "a name has 1 to 64 letters, digits and punctuation")
	}
	b := make([]byte, 20)
	rand.Read(b)
	credential := CredentialPrefix + hex.EncodeToString(b)
	a := &Approver{ID: strings.ToLower("ap" + rand.Text()[:8]), Name: name, Created: s.now().UTC().Truncate(time.Millisecond)}
	err := s.db.Update(ctx, func(tx *sql.Tx) error {
		var others, same int
		err := tx.QueryRowContext(ctx, "SELECT count(*), count(*) FILTER (WHERE name = ?) FROM approvers WHERE revoked = 0", name).Scan(&others, &same)
		switch {
		case err != nil:
			return err
		case others > 0 && by.name == "":
			return refused("there are approvers, and none of them vouches for another", "give the credential of one who is enrolled")
		case same > 0:
			return &sandbox.Error{Op: "approver " + name, Kind: sandbox.ErrConflict, Problem: "there is one of this name", Hint: "revoke them first, or take another name"}
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO approvers (id, name, hash, created) VALUES (?, ?, ?, ?)", a.ID, a.Name, hashOf(credential), a.Created.UnixMilli())
		return err
	})
	if err != nil {
		return nil, "", s.db.Failed("write", err)
	}
	return a, credential, nil
}

// Authenticate finds the approver whose credential it is, who answers by channel.
// ErrDenied when it is no approver's.
func (s *Store) Authenticate(ctx context.Context, credential string, channel Channel) (Who, error) {
	want := hashOf(credential)
	var have []byte
	var name string
	err := s.db.QueryRowContext(ctx, "SELECT name, hash FROM approvers WHERE hash = ? AND revoked = 0", want).Scan(&name, &have)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Who{}, refused("it is not the credential of an approver", "a key of caisson keys is none; caisson approvals enroll makes one")
	case err != nil:
		return Who{}, s.db.Failed("read", err)
	case subtle.ConstantTimeCompare(want, have) != 1 || !strings.HasPrefix(credential, CredentialPrefix):
		return Who{}, refused("it is not the credential of an approver", "")
	}
	return Who{"approver:" + name, channel}, nil
}

// Approvers lists all, oldest first, also those who were revoked.
func (s *Store) Approvers(ctx context.Context) ([]*Approver, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id, name, created, revoked FROM approvers ORDER BY created, id")
	if err != nil {
		return nil, s.db.Failed("read", err)
	}
	defer rows.Close()
	var out []*Approver
	for rows.Next() {
		var a Approver
		var created, revoked int64
		if err := rows.Scan(&a.ID, &a.Name, &created, &revoked); err != nil {
			return nil, s.db.Failed("read", err)
		}
		a.Created = time.UnixMilli(created).UTC()
		if revoked != 0 {
			a.Revoked = time.UnixMilli(revoked).UTC()
		}
		out = append(out, &a)
	}
	return out, s.db.Failed("read", rows.Err())
}

// Revoke makes a credential invalid, named by the approver's name or ID. It
// wants another's or the same one's credential, as Enroll does.
func (s *Store) Revoke(ctx context.Context, by Who, which string) error {
	if by.name == "" {
		return refused("only an approver may ask for it", "give the credential of an approver")
	}
	res, err := s.db.ExecContext(ctx, "UPDATE approvers SET revoked = ? WHERE revoked = 0 AND (name = ? OR id = ?)", s.now().UnixMilli(), which, which)
	if err != nil {
		return s.db.Failed("write", err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return &sandbox.Error{Op: "approver " + clip(which, 64), Kind: sandbox.ErrNotFound, Problem: "there is none, or they are revoked", Hint: "see caisson approvals approvers"}
	}
	return nil
}

// Reachable says whether an approver could answer by one of channels, but for a
// terminal or a client that a frontend has at hand.
func (s *Store) Reachable(ctx context.Context, channels []Channel) (bool, error) {
	for _, c := range channels {
		if c == CLI || c == Web {
			var n int
			err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM approvers WHERE revoked = 0").Scan(&n)
			return n > 0, s.db.Failed("read", err)
		}
	}
	return false, nil
}
