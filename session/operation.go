// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
)

// operation is one call in the record: a run, a command in a sandbox, a file, a port, a
// tool, a snapshot, a pause, an end, an answer. Its intent is on disk before anything is
// carried out. Its end adds what came of it. Every call in the record is one; arch_test
// holds that nothing else begins, ends or refuses records.
type operation struct {
	id    string
	entry *audit.Entry
}

// beginOperation writes the intent down. Nothing may be carried out when it fails.
func beginOperation(ctx context.Context, j Journal, in audit.Intent) (*operation, error) {
	entry, err := j.Begin(ctx, in)
	if err != nil {
		return nil, err
	}
	return &operation{id: entry.ID, entry: entry}, nil
}

// end writes the outcome down, also when ctx has ended. It is called once.
func (o *operation) end(ctx context.Context, out audit.Outcome) error {
	return o.entry.End(context.WithoutCancel(ctx), out)
}

// refuseOperation writes down a call that goes no further than its intent.
func refuseOperation(ctx context.Context, j Journal, in audit.Intent, out audit.Outcome) error {
	return j.Refuse(context.WithoutCancel(ctx), in, out)
}

// perform records in, does it, and records what came of it. A nil Result of do is a
// plain success. Where the outcome cannot be recorded, that is an error beside do's.
func perform(ctx context.Context, j Journal, in audit.Intent, do func(context.Context, *operation) (*sandbox.Result, error)) error {
	op, err := beginOperation(ctx, j, in)
	if err != nil {
		return err
	}
	res, err := do(ctx, op)
	return errors.Join(err, op.end(ctx, outcomeOf(res, err)))
}

// outcomeOf is what a record says of a call that succeeded with res, or failed with err.
func outcomeOf(res *sandbox.Result, err error) audit.Outcome {
	if err != nil {
		return audit.Outcome{Status: audit.Failed, Error: err.Error()}
	}
	if res == nil {
		res = &sandbox.Result{Status: sandbox.StatusSuccess}
	}
	return audit.Outcome{Status: audit.Allowed, Result: res}
}

// refusedOutcome is what a record says of a call that why refused.
func refusedOutcome(why error) audit.Outcome {
	res := &sandbox.Result{Status: sandbox.StatusDenied, Reason: why.Error()}
	var e *sandbox.Error
	if errors.As(why, &e) {
		res.Rule, res.Hint = e.Rule, e.Hint
	}
	return audit.Outcome{Status: audit.Refused, Error: why.Error(), Result: res}
}
