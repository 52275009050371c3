// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Who is a person who may answer. The zero Who may not: one comes from
// [Store.Authenticate] or from a frontend that vouches for a person.
type Who struct {
	name    string
	channel Channel
}

// Name is how records call them.
func (w Who) Name() string { return w.name }

// Channel is the way by which they answer.
func (w Who) Channel() Channel { return w.channel }

// AtTerminal is a person at a terminal. The frontend that says so has opened the
// terminal itself, and knows that it is not the agent's.
func AtTerminal(name string) Who { return Who{"terminal:" + name, Terminal} }

// ByElicitation is the user of an agent's own client: as good as that client.
// It answers only where a policy names the channel.
func ByElicitation(name string) Who { return Who{"client:" + name, Elicitation} }

// Approve says yes to a request. digest is the one that the approver was shown,
// or as much of its beginning as they could be asked for (12 digits at least):
// the approver says what is approved.
func (s *Store) Approve(ctx context.Context, who Who, id, digest string) (*Request, error) {
	return s.answer(ctx, who, id, func(r *Request) (State, string, error) {
		if !sameDigest(r.Digest, digest) {
			return "", "", &sandbox.Error{Op: "approve " + r.ID, Kind: sandbox.ErrConflict, Problem: "it is not about what was shown",
				Hint: "look at it again: caisson approvals show " + r.ID}
		}
		return Approved, "", nil
	})
}

// Deny says no to a request.
func (s *Store) Deny(ctx context.Context, who Who, id, note string) (*Request, error) {
	return s.answer(ctx, who, id, func(*Request) (State, string, error) { return Denied, clip(note, maxNote), nil })
}

func (s *Store) answer(ctx context.Context, who Who, id string, decide func(*Request) (State, string, error)) (*Request, error) {
	var r *Request
	err := s.db.Update(ctx, func(tx *sql.Tx) (err error) {
		now := s.now()
		if err := s.expire(ctx, tx, now); err != nil {
			return err
		}
		if r, err = get(ctx, tx, id); err != nil {
			return err
		}
		switch {
		case who.name == "":
			return refused("only an approver may answer", "give the credential of an approver")
		case r.State != Pending:
			return &sandbox.Error{Op: "approval " + r.ID, Kind: sandbox.ErrConflict, Problem: "it is " + string(r.State) + " already"}
		case !slices.Contains(r.Channels, who.channel):
			return refused(fmt.Sprintf("the policy takes no answer by the channel %s for this", who.channel),
				"let the policy name it: approvals: {channels: ["+string(who.channel)+"]}")
		}
		state, note, err := decide(r)
		if err != nil {
			return err
		}
		r.State, r.Note, r.Approver, r.Channel = state, note, who.name, who.channel
		if state == Approved {
			// The yes stands as long as the question did, from now on.
			_, err := tx.ExecContext(ctx, `UPDATE requests SET state = 'approved', approver = ?, channel = ?, expires = ? + timeout WHERE id = ? AND state = 'pending'`,
				who.name, who.channel, now.UnixMilli(), r.ID)
			return err
		}
		r.Ended = now.UTC()
		_, err = tx.ExecContext(ctx, `UPDATE requests SET state = ?, approver = ?, channel = ?, note = ?, ended = ? WHERE id = ? AND state = 'pending'`,
			state, who.name, who.channel, note, now.UnixMilli(), r.ID)
		return err
	})
	if err != nil {
		return nil, s.db.Failed("write", err)
	}
	s.ring()
	return r, nil
}

// sameDigest compares what an approver confirmed with what is asked.
func sameDigest(whole, given string) bool {
	const prefix, least = len("sha256:"), 12
	if len(given) >= prefix && given[:prefix] == whole[:prefix] {
		given = given[prefix:]
	}
	return len(given) >= least && len(given) <= len(whole)-prefix &&
		subtle.ConstantTimeCompare([]byte(whole[prefix:prefix+len(given)]), []byte(given)) == 1
}

// Cancel takes a question back: who asked went away. It is as final as a no,
// and takes back a yes that was not used.
func (s *Store) Cancel(ctx context.Context, id, why string) error {
	err := s.db.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE requests SET state = 'cancelled', note = ?, ended = ? WHERE id = ? AND state IN ('pending', 'approved')`,
			clip(why, maxNote), s.now().UnixMilli(), id)
		return err
	})
	s.ring()
	return s.db.Failed("write", err)
}

// errNotYet says that Use came before the answer.
var errNotYet = errors.New("no approver has answered yet")

// NotYet says of an error of Use that the request is still pending, and may be
// presented again.
func NotYet(err error) bool { return errors.Is(err, errNotYet) }

// Use takes an approval for the call whose subject it is, once. It is ErrDenied
// when there is none: the token is unknown, another actor's, used, expired, or
// denied. One that is presented with another subject is void from then on.
func (s *Store) Use(ctx context.Context, token string, subject *Subject) (*Request, error) {
	digest := subject.Digest()
	var r *Request
	var refusal error
	err := s.db.Update(ctx, func(tx *sql.Tx) (err error) {
		now := s.now()
		if err := s.expire(ctx, tx, now); err != nil {
			return err
		}
		r, err = scanRequest(tx.QueryRowContext(ctx, "SELECT "+requestColumns+" FROM requests WHERE token = ?", hashOf(token)))
		if errors.Is(err, sql.ErrNoRows) {
			refusal = refused("the token is not known", "ask for approval")
			return nil
		} else if err != nil {
			return err
		}
		next := Used
		switch {
		case r.Actor != subject.Actor:
			refusal = refused("the token is not known", "ask for approval") // no caller learns of others' requests
			return nil
		case r.State == Pending && r.Digest == digest:
			refusal = &sandbox.Error{Op: "approval " + r.ID, Kind: sandbox.ErrDenied, Problem: "no approver has answered yet",
				Hint: "present it again when an approver has", Rule: "built-in: approvals", Cause: errNotYet}
			return nil
		case r.State != Approved && r.State != Pending:
			refusal = r.Refusal()
			return nil
		case r.Digest != digest:
			next, refusal = Void, refused("what is to run is not what approval was asked for", "ask again")
		}
		r.State, r.Ended = next, now.UTC().Truncate(time.Millisecond)
		_, err = tx.ExecContext(ctx, "UPDATE requests SET state = ?, ended = ? WHERE id = ? AND state IN ('pending', 'approved')", next, now.UnixMilli(), r.ID)
		return err
	})
	if err != nil {
		return nil, s.db.Failed("write", err)
	}
	s.ring()
	if refusal != nil {
		return r, refusal
	}
	return r, nil
}

// Refusal is why a request that ended is no approval; nil for one that is
// approved.
func (r *Request) Refusal() error {
	e := &sandbox.Error{Op: "approval " + r.ID, Kind: sandbox.ErrDenied, Rule: "built-in: approvals", Hint: "that is final: do something else"}
	switch r.State {
	case Approved:
		return nil
	case Denied:
		e.Problem = r.Approver + " denied it"
		if r.Note != "" {
			e.Problem += ": " + r.Note
		}
	case Expired:
		e.Problem = "it was not approved in time, or it did not run in time"
	case Used:
		e.Problem, e.Hint = "it was used already, and is good for once", "ask again"
	case Void:
		e.Problem, e.Hint = "it was presented with another call, which ended it", "ask again"
	case Cancelled:
		e.Problem = "the question was taken back"
	default:
		e.Problem = "no approver has answered yet"
	}
	return e
}

// lookEvery is how often a request is looked at that another process may
// answer. People take seconds; one look is one read of a row.
const lookEvery = 200 * time.Millisecond

// Wait waits until a request is answered or expires, and returns how it stands.
// When ctx ends, the question is not taken back.
func (s *Store) Wait(ctx context.Context, id string) (*Request, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		changed := s.bell()
		r, err := s.Get(ctx, id)
		if err != nil || r.State != Pending {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-changed:
		case <-tick.C:
		}
	}
}

// bell is closed when this process next changes a request.
func (s *Store) bell() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Store) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}
