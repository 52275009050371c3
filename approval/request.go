// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// State is how a request stands.
type State string

// The states. All but the first two are final.
const (
	Pending   State = "pending"   // no answer yet
	Approved  State = "approved"  // there is a yes, and it has not run
	Used      State = "used"      // it ran, or was about to
	Denied    State = "denied"    // there is a no
	Expired   State = "expired"   // it was not answered in time, or did not run in time
	Cancelled State = "cancelled" // who asked went away
	Void      State = "void"      // approved, and then presented with another call
)

// States are all there are.
func States() []State {
	return []State{Pending, Approved, Used, Denied, Expired, Cancelled, Void}
}

// Channel is a way by which a person is asked and answers.
type Channel string

// The channels.
const (
	Terminal    Channel = "terminal"    // the operator's own, of caisson run
	CLI         Channel = "cli"         // caisson approvals, with a credential
	Web         Channel = "web"         // HTTP, with a credential
	Elicitation Channel = "elicitation" // the agent's own client asks its user: the weakest, since the agent's side answers
)

// Channels are all there are, as policy files write them.
func Channels() []string {
	return []string{string(Terminal), string(CLI), string(Web), string(Elicitation)}
}

// Request is one question, as everybody may see it.
type Request struct {
	ID       string    `json:"id"` // "apv_" and 26 letters and digits; no secret
	Actor    string    `json:"actor"`
	Digest   string    `json:"digest"`
	State    State     `json:"state"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"` // the question; once it is approved, the answer
	Ended    time.Time `json:"ended,omitzero"`
	Approver string    `json:"approver,omitempty"` // who answered
	Channel  Channel   `json:"channel,omitempty"`  // by which way
	Note     string    `json:"note,omitempty"`     // why not
	Channels []Channel `json:"channels"`           // that may answer
	View     View      `json:"view"`
	// URL is where an approver answers in a browser, where the caller knows one. It
	// is not kept, and opens nothing.
	URL string `json:"url,omitempty"`

	summary string // what it is about, of one that comes without View
}

// Wish is a request to be made.
type Wish struct {
	Subject *Subject
	// Channels may answer; without any no person may.
	Channels []Channel
	// Timeout is how long the question stands, and then once more the yes.
	Timeout time.Duration
	// Again asks although the same was denied: a person at a terminal, who has
	// just said no, may ask again. An agent may not.
	Again bool
}

// Bounds of what one actor can put before the approvers.
const (
	maxPending  = 16  // of one actor
	maxWaiting  = 256 // of all together
	maxAsked    = 100 // of one actor within askedWithin, whatever became of them
	askedWithin = 10 * time.Minute
	maxKept     = 500 // of one actor, but for those that were denied
	keepEnded   = 7 * 24 * time.Hour
	maxNote     = 500
)

// Ask makes a request. Its token is the actor's, for Use, and cannot be had
// again. ErrDenied says that the same was denied to the same actor a moment
// ago, or that no person can be asked; ErrExhausted that too much is asked.
func (s *Store) Ask(ctx context.Context, w Wish) (*Request, string, error) {
	view, err := w.Subject.View()
	if err != nil {
		return nil, "", err
	}
	if len(w.Channels) == 0 || w.Timeout <= 0 {
		return nil, "", refused("no approver can be asked", "let the policy name channels: approvals: {channels: [cli]}")
	}
	now := s.now()
	r := &Request{
		ID: "apv_" + strings.ToLower(rand.Text()), Actor: w.Subject.Actor, Digest: w.Subject.Digest(), State: Pending,
		Created: now.UTC().Truncate(time.Millisecond), Channels: slices.Clone(w.Channels), View: *view,
	}
	r.Expires = r.Created.Add(w.Timeout)
	token := "apt_" + rand.Text()
	body, err := json.Marshal(r.View)
	if err != nil {
		return nil, "", err
	}
	channels, err := json.Marshal(r.Channels)
	if err != nil {
		return nil, "", err
	}
	err = s.db.Update(ctx, func(tx *sql.Tx) error {
		if err := s.expire(ctx, tx, now); err != nil {
			return err
		}
		if err := admit(ctx, tx, r, w.Again, now); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM requests WHERE actor = ? AND state IN ('used', 'expired', 'cancelled', 'void')
			AND created < (SELECT created FROM requests WHERE actor = ? ORDER BY created DESC LIMIT 1 OFFSET ?)`, r.Actor, r.Actor, maxKept)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO requests (id, token, actor, digest, state, created, expires, timeout, channels, view)
			VALUES (?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?)`,
			r.ID, hashOf(token), r.Actor, r.Digest, now.UnixMilli(), r.Expires.UnixMilli(), w.Timeout.Milliseconds(), channels, body)
		return err
	})
	if err != nil {
		return nil, "", s.db.Failed("write", err)
	}
	s.ring()
	return r, token, nil
}

// admit refuses what was just denied, and what is too much.
func admit(ctx context.Context, tx *sql.Tx, r *Request, again bool, now time.Time) error {
	var mine, all, denied, asked int
	err := tx.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE actor = ?) FROM requests WHERE state = 'pending'`, r.Actor).Scan(&all, &mine)
	if err != nil {
		return err
	}
	// A no stands for as long as the question would have.
	err = tx.QueryRowContext(ctx, `SELECT count(*) FROM requests WHERE actor = ? AND digest = ? AND state = 'denied' AND ended + timeout > ?`,
		r.Actor, r.Digest, now.UnixMilli()).Scan(&denied)
	if err != nil {
		return err
	}
	err = tx.QueryRowContext(ctx, `SELECT count(*) FROM requests WHERE actor = ? AND created > ?`, r.Actor, now.Add(-askedWithin).UnixMilli()).Scan(&asked)
	switch {
	case err != nil:
		return err
	case denied > 0 && !again:
		return refused("the same was denied a moment ago, and that was final", "do something else")
	case mine >= maxPending || all >= maxWaiting:
		return &sandbox.Error{Op: "approval", Kind: sandbox.ErrExhausted, Problem: "too many questions wait for an answer", Hint: "wait until some are answered"}
	case asked >= maxAsked && !again:
		return &sandbox.Error{Op: "approval", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("%d questions were asked within %v", maxAsked, askedWithin), Hint: "wait"}
	}
	return nil
}

// expire ends what was not answered or used in time, and forgets what ended
// long ago. A clock that was set back must not make anything last longer.
func (s *Store) expire(ctx context.Context, tx *sql.Tx, now time.Time) error {
	ms := now.UnixMilli()
	if _, err := tx.ExecContext(ctx, `UPDATE requests SET state = 'expired', ended = ? WHERE state IN ('pending', 'approved') AND (expires <= ? OR created > ? + 1000)`, ms, ms, ms); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM requests WHERE state NOT IN ('pending', 'approved') AND ended < ?`, now.Add(-keepEnded).UnixMilli())
	return err
}

const requestColumns = "id, actor, digest, state, created, expires, ended, approver, channel, note, channels, view"

func scanRequest(row interface{ Scan(...any) error }) (*Request, error) {
	var r Request
	var created, expires, ended int64
	var channels, view []byte
	if err := row.Scan(&r.ID, &r.Actor, &r.Digest, &r.State, &created, &expires, &ended, &r.Approver, &r.Channel, &r.Note, &channels, &view); err != nil {
		return nil, err
	}
	r.Created, r.Expires = time.UnixMilli(created).UTC(), time.UnixMilli(expires).UTC()
	if ended != 0 {
		r.Ended = time.UnixMilli(ended).UTC()
	}
	return &r, errors.Join(json.Unmarshal(channels, &r.Channels), json.Unmarshal(view, &r.View))
}

// Get finds a request by its ID, or by the beginning of it where only one has
// that.
func (s *Store) Get(ctx context.Context, id string) (*Request, error) {
	var r *Request
	err := s.db.Update(ctx, func(tx *sql.Tx) (err error) {
		if err := s.expire(ctx, tx, s.now()); err != nil {
			return err
		}
		r, err = get(ctx, tx, id)
		return err
	})
	return r, s.db.Failed("read", err)
}

func get(ctx context.Context, tx *sql.Tx, id string) (*Request, error) {
	id = strings.TrimPrefix(strings.ToLower(id), "apv_")
	if len(id) < 4 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return nil, unknown(id)
	}
	rows, err := tx.QueryContext(ctx, "SELECT "+requestColumns+" FROM requests WHERE id GLOB ? LIMIT 2", "apv_"+id+"*")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []*Request
	for rows.Next() {
		r, err := scanRequest(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	switch {
	case rows.Err() != nil:
		return nil, rows.Err()
	case len(found) == 0:
		return nil, unknown(id)
	case len(found) > 1:
		return nil, &sandbox.Error{Op: "approval apv_" + id, Kind: sandbox.ErrConflict, Problem: "several begin so", Hint: "write the whole ID, from caisson approvals ls"}
	}
	return found[0], nil
}

// List lists requests, newest first: all, or those in one of some states.
func (s *Store) List(ctx context.Context, states ...State) ([]*Request, error) {
	var out []*Request
	err := s.db.Update(ctx, func(tx *sql.Tx) error {
		if err := s.expire(ctx, tx, s.now()); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT "+requestColumns+" FROM requests ORDER BY created DESC, id")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			r, err := scanRequest(rows)
			if err != nil {
				return err
			}
			if len(states) == 0 || slices.Contains(states, r.State) {
				out = append(out, r)
			}
		}
		return rows.Err()
	})
	return out, s.db.Failed("read", err)
}

func unknown(id string) error {
	return &sandbox.Error{Op: "approval " + clip(id, 40), Kind: sandbox.ErrNotFound, Problem: "there is none", Hint: "see caisson approvals ls"}
}

func refused(problem, hint string) error {
	return &sandbox.Error{Op: "approval", Kind: sandbox.ErrDenied, Problem: problem, Hint: hint, Rule: "built-in: approvals"}
}

// clip keeps at most n bytes of what a person typed.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
