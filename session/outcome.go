// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"slices"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/network"
)

// Failed records a call that did not come to run, and says why. It never returns nil.
func (d *Decision) Failed(ctx context.Context, j audit.Journal, why error) error {
	if byRule(why) {
		return d.Refused(ctx, j, why)
	}
	// A record that cannot be written changes nothing here: nothing ran.
	jerr := audit.Refuse(ctx, j, d.Intent, outcome(nil, why))
	if errors.Is(jerr, sandbox.ErrExhausted) {
		return jerr
	}
	return errors.Join(why, jerr)
}

// Refused records what was refused, and says why. It never returns nil.
func (d *Decision) Refused(ctx context.Context, j audit.Journal, why error) error {
	if _, err := d.refuse(ctx, j, why); err != nil {
		return err
	}
	return why
}

// refuse records a refusal, by policy or by a rule that is built in. It is a
// Result: the caller's question was answered. What cannot be meant is recorded, too,
// and is an error.
func (d *Decision) refuse(ctx context.Context, j audit.Journal, why error) (*sandbox.Result, error) {
	res := &sandbox.Result{Status: sandbox.StatusDenied, Reason: why.Error(), Findings: d.Findings}
	var e *sandbox.Error
	if errors.As(why, &e) {
		res.Rule, res.Hint = e.Rule, e.Hint
	}
	out := audit.Outcome{Status: audit.Refused, Result: res, Error: why.Error()}
	if err := audit.Refuse(ctx, j, d.Intent, out); err != nil {
		return nil, err
	}
	if errors.Is(why, sandbox.ErrInvalid) {
		return nil, why
	}
	return res, nil
}

// byRule says that a rule refused a call; anything else that kept it from running is
// a failure.
func byRule(why error) bool {
	var e *sandbox.Error
	return errors.As(why, &e) && e.Kind == sandbox.ErrDenied && e.Rule != ""
}

// whyNot names what is behind an error of a driver that was cancelled before
// its program ran.
func whyNot(ctx context.Context, err error) error {
	if errors.Is(err, sandbox.ErrUnended) {
		return err
	}
	if reason, limit := endedBy(ctx); limit {
		return &sandbox.Error{Op: "run", Kind: sandbox.ErrUnavailable, Problem: reason + " before the program had started",
			Hint: "raise the limit", Cause: err}
	}
	if lost := context.Cause(ctx); errors.Is(lost, network.ErrLost) {
		return &sandbox.Error{Op: "run", Kind: sandbox.ErrUnavailable, Problem: lost.Error(), Cause: err}
	}
	return err
}

// Finish fills in what the pipeline counted.
func (r *Invocation) Finish(res *sandbox.Result, posture sandbox.Posture) {
	res.Posture, res.Findings = posture, r.Findings
	res.Network = r.Network.Use()
	if r.Network != nil {
		settleBudget(r.Network.Exhausted(), res)
	}
	for _, s := range r.out {
		if cut, at := s.cut(); cut > 0 {
			if res.Truncated == nil {
				res.Truncated, res.TruncatedAt = map[string]int64{}, map[string]int64{}
			}
			res.Truncated[s.name], res.TruncatedAt[s.name] = cut, at
		}
	}
	if len(res.Truncated) > 0 && res.Resource != sandbox.LimitOutput && !slices.Contains(res.LimitsHit, sandbox.LimitOutput) {
		res.LimitsHit = append(res.LimitsHit, sandbox.LimitOutput)
	}
	if r.IO.Stdout == nil {
		res.Stdout = r.out[0].bytes()
	}
	if r.IO.Stderr == nil {
		res.Stderr = r.out[1].bytes()
	}
}

// Outcome is what the record says of the end, with what was written.
func (s *streams) Outcome(res *sandbox.Result, err error) audit.Outcome {
	o := outcome(res, err)
	if s.out[0] != nil {
		o.Stdout, o.Stderr = s.out[0].captured(), s.out[1].captured()
	}
	return o
}

// outcome is what the record says of the end of a call.
func outcome(res *sandbox.Result, err error) audit.Outcome {
	o := audit.Outcome{Status: audit.Allowed, Result: ForRecord(res)}
	if res == nil {
		o.Status = audit.Failed
		if errors.Is(err, sandbox.ErrUnsupported) {
			o.Status = audit.Refused // by the name of what cannot be enforced
		}
	}
	if err != nil {
		o.Error = err.Error()
	}
	return o
}

// Drain waits for the caller's writers to take the last bytes. The sandbox is
// gone and recorded by then. A program that ended by itself is waited for like
// any program whose reader is slow. Where a file of the caller's took less than
// was written, that is the error of a call that has no other.
func (s *streams) Drain(ctx context.Context, failed *error) {
	if s.out[0] == nil {
		return
	}
	if _, limit := endedBy(s.over); limit || ctx.Err() != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), drainGrace)
		defer stop()
	}
	var lost []error
	for _, o := range s.out {
		if o.pump != nil {
			o.end(ctx)
			lost = append(lost, unwritten(o.name, o.pump.drain(ctx)))
		}
	}
	if *failed == nil {
		*failed = errors.Join(lost...)
	}
}

// Denied is a refusal as an error.
func Denied(op string, res *sandbox.Result) error {
	return &sandbox.Error{Op: op, Kind: sandbox.ErrDenied, Problem: res.Reason, Hint: res.Hint, Rule: res.Rule}
}
