// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

// maxInput is how much of standard input a question can be about.
const maxInput = 128 << 10

// ReadInput reads all of standard input where a question is to be put: what a
// program reads decides what it does. Typed input is left out, because it is
// not known yet.
func (r *Invocation) ReadInput(ctx context.Context) error {
	if r.Question == nil || r.IO.Stdin == nil || r.input != nil {
		return nil
	}
	if r.Call.TypedInput {
		r.IO.Stdin = nil
		if r.Call.OnNotice != nil {
			r.Call.OnNotice("the program gets no standard input: what is typed later cannot be approved")
		}
		return nil
	}
	return r.capture(ctx, &r.IO, r.Question.Timeout, "an approver would have to approve all of it")
}

// capture reads all of standard input within a time; why says what for.
func (s *source) capture(ctx context.Context, in *IO, within time.Duration, why string) error {
	if s.input != nil {
		return nil
	}
	e := &sandbox.Error{Op: "standard input", Kind: sandbox.ErrInvalid, Hint: "leave it out, or put it into a file"}
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	read := make(chan struct{})
	var b []byte
	from := in.Stdin
	go func() {
		defer close(read)
		b, e.Cause = io.ReadAll(io.LimitReader(from, maxInput+1))
	}()
	select {
	case <-ctx.Done(): // the reader goes on until there is something
		return &sandbox.Error{Op: e.Op, Kind: sandbox.ErrInvalid, Problem: "it has not ended, and " + why, Hint: e.Hint}
	case <-read:
	}
	switch {
	case e.Cause != nil:
		e.Problem = "it cannot be read"
		return e
	case len(b) > maxInput:
		e.Problem = fmt.Sprintf("it is longer than %d KiB, and %s", maxInput>>10, why)
		return e
	}
	s.input, in.Stdin = b, bytes.NewReader(b)
	return nil
}

// Asking is the question of the call.
func (r *Invocation) Asking() *question.Asking {
	d := question.Described{
		Call: &r.Call.Call, Plan: &r.Plan, Policy: r.Session.o.Policy, RecordArgv: r.Call.RecordArgv, Fetches: r.Call.Fetches, DangerousMounts: r.Call.AllowDangerousMounts,
		Watch: r.Call.Watch, Binary: r.binary, HasStdin: r.IO.Stdin != nil, Stdin: r.input, Placeholders: r.Placeholders(), Findings: r.Findings,
	}
	if r.Program != nil {
		d.HasSource, d.Source = true, r.Call.Source.Code
	}
	return &question.Asking{
		Approvals: r.Session.o.Approvals, Journal: r.Session.o.Journal, Question: r.Question, Intent: r.Intent, Notice: r.Call.notice, Ways: r.Call.Ways, Described: d,
	}
}
