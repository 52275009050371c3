// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/sandbox"
)

// Journal keeps the records of calls; *Log is one.
type Journal interface {
	// Begin commits the intent to run. Nothing runs when it fails.
	Begin(ctx context.Context, in Intent) (*Entry, error)
	// Refuse commits a call that did not run: refused, or failed before it
	// began.
	Refuse(ctx context.Context, in Intent, out Outcome) error
	// Connections commits what networks did. A network that cannot be recorded is
	// closed.
	Connections(ctx context.Context, list []Connection) error
}

// Operation is one call in the record: a run, a command in a sandbox, a file, a port, a
// tool, a snapshot, a pause, an end, an answer. Its intent is on disk before anything is
// carried out. Its end adds what came of it. Every call in the record is one; arch_test
// holds that nothing else begins, ends or refuses records. The caller must call End.
type Operation struct {
	ID    string // of its record
	entry *Entry
}

// Begin writes the intent down. Nothing may be carried out when it fails.
func Begin(ctx context.Context, j Journal, in Intent) (*Operation, error) {
	entry, err := j.Begin(ctx, in)
	if err != nil {
		return nil, err
	}
	return &Operation{ID: entry.ID, entry: entry}, nil
}

// End writes the outcome down, also when ctx has ended. It is called once.
func (o *Operation) End(ctx context.Context, out Outcome) error {
	return o.entry.End(context.WithoutCancel(ctx), out)
}

// Refuse writes down a call that goes no further than its intent.
func Refuse(ctx context.Context, j Journal, in Intent, out Outcome) error {
	return j.Refuse(context.WithoutCancel(ctx), in, out)
}

// Perform records in, does it, and records what came of it. A nil Result of do is a
// plain success. Where the outcome cannot be recorded, that is an error beside do's.
func Perform(ctx context.Context, j Journal, in Intent, do func(context.Context, *Operation) (*sandbox.Result, error)) error {
	op, err := Begin(ctx, j, in)
	if err != nil {
		return err
	}
	res, err := do(ctx, op)
	return errors.Join(err, op.End(ctx, OutcomeOf(res, err)))
}

// OutcomeOf is what a record says of a call that succeeded with res, or failed with err.
func OutcomeOf(res *sandbox.Result, err error) Outcome {
	if err != nil {
		return Outcome{Status: Failed, Error: err.Error()}
	}
	if res == nil {
		res = &sandbox.Result{Status: sandbox.StatusSuccess}
	}
	return Outcome{Status: Allowed, Result: res}
}

// RefusedOutcome is what a record says of a call that why refused.
func RefusedOutcome(why error) Outcome {
	res := &sandbox.Result{Status: sandbox.StatusDenied, Reason: why.Error()}
	var e *sandbox.Error
	if errors.As(why, &e) {
		res.Rule, res.Hint = e.Rule, e.Hint
	}
	return Outcome{Status: Refused, Error: why.Error(), Result: res}
}
