// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Filter is which requests are meant, and how many.
type Filter struct {
	States []State // empty is all
	Limit  int     // 1 to MaxListed
	// After is the cursor of the page before; empty is the first page.
	After string
}

// MaxListed is how many requests are on a page.
const MaxListed = 100

// Page lists requests, newest first, with the cursor of the next page, which is
// empty on the last one. They come without what an approver has to see before
// they say yes (View), which is long; About says what each is about.
func (s *Store) Page(ctx context.Context, f Filter) (list []*Request, next string, err error) {
	last, id, err := readCursor(f.After)
	if err != nil {
		return nil, "", err
	}
	limit := min(max(f.Limit, 1), MaxListed)
	err = s.db.Update(ctx, func(tx *sql.Tx) error {
		if err := s.expire(ctx, tx, s.now()); err != nil {
			return err
		}
		where, args := "", []any{}
		if f.After != "" {
			where, args = " WHERE (created < ? OR created = ? AND id > ?)", []any{last, last, id}
		}
		rows, err := tx.QueryContext(ctx, "SELECT "+requestColumns+" FROM requests"+where+" ORDER BY created DESC, id", args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			r, err := scanRequest(rows)
			if err != nil {
				return err
			}
			if len(f.States) > 0 && !slices.Contains(f.States, r.State) {
				continue
			}
			if len(list) == limit {
				next = fmt.Sprintf("%d.%s", list[limit-1].Created.UnixMilli(), list[limit-1].ID)
				break
			}
			r.summary, r.View = r.About(), View{}
			list = append(list, r)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, "", s.db.Failed("read", err)
	}
	return list, next, nil
}

func readCursor(text string) (created int64, id string, err error) {
	if text == "" {
		return 0, "", nil
	}
	if n, err := fmt.Sscanf(text, "%d.%s", &created, &id); n != 2 || err != nil || len(id) > 40 {
		return 0, "", sandbox.Errorf(sandbox.ErrInvalid, "cursor", "it is not one that a list gave")
	}
	return created, id, nil
}

// About is what a request is about, on one line that may be shown as it is.
func (r *Request) About() string {
	if r.summary != "" {
		return r.summary
	}
	for _, f := range r.View.Fields {
		if strings.HasPrefix(f.Name, "asked because") && len(f.Lines) > 0 {
			return strings.TrimPrefix(f.Lines[0], gutter)
		}
	}
	return "-"
}

// Changes waits until requests may have changed: this process has changed one,
// or it is time to see what others did. It returns when ctx ends, too.
func (s *Store) Changes(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.bell():
	case <-time.After(lookEvery):
	}
}

// Presented finds the request of a token, if actor asked it. ErrDenied is that
// there is none: no caller learns of others' requests.
func (s *Store) Presented(ctx context.Context, actor, token string) (*Request, error) {
	var r *Request
	err := s.db.Update(ctx, func(tx *sql.Tx) (err error) {
		if err := s.expire(ctx, tx, s.now()); err != nil {
			return err
		}
		r, err = scanRequest(tx.QueryRowContext(ctx, "SELECT "+requestColumns+" FROM requests WHERE token = ? AND actor = ?", hashOf(token), actor))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, refused("the token is not known", "ask for approval")
	}
	return r, s.db.Failed("read", err)
}
