// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// What is known of an error arrives; what is not leaves the owner its own guess.
func TestAdvice(t *testing.T) {
	known := &sandbox.Error{Op: "enter cgroup x", Kind: sandbox.ErrConflict, Problem: "it is full", Hint: "empty it"}
	for name, tc := range map[string]struct {
		err  error
		kind error
		hint string
	}{
		"known":                     {known, sandbox.ErrConflict, "empty it"},
		"wrapped":                   {fmt.Errorf("to begin with: %w", known), sandbox.ErrConflict, "empty it"},
		"of a cause":                {&sandbox.Error{Kind: sandbox.ErrDenied, Problem: "no", Cause: known}, sandbox.ErrDenied, "empty it"},
		"of no kind":                {&sandbox.Error{Problem: "no", Hint: "ask"}, sandbox.ErrUnavailable, "ask"},
		"a kind alone":              {sandbox.Errorf(sandbox.ErrInvalid, "x", "no"), sandbox.ErrInvalid, "guessed"},
		"another program's":         {errors.New("no"), sandbox.ErrUnavailable, "guessed"},
		"a kind alone, unexplained": {fmt.Errorf("no: %w", sandbox.ErrInvalid), sandbox.ErrUnavailable, "guessed"},
	} {
		e := Event{Kind: Failed}
		e.Fail(tc.err)
		var got Event
		if line, err := json.Marshal(e); err != nil || json.Unmarshal(line, &got) != nil {
			t.Fatal(err)
		}
		guess := &sandbox.Error{Kind: sandbox.ErrUnavailable, Hint: "guessed"}
		got.Advice.Over(guess)
		if got.Error != tc.err.Error() || !errors.Is(guess, tc.kind) || guess.Hint != tc.hint {
			t.Errorf("%s: %q, %v, hint %q", name, got.Error, guess.Kind, guess.Hint)
		}
	}
}

// Every kind has a name of its own on the way, and comes back.
func TestEveryKindArrives(t *testing.T) {
	for _, kind := range []error{sandbox.ErrInvalid, sandbox.ErrNotFound, sandbox.ErrUnsupported, sandbox.ErrDenied,
		sandbox.ErrConflict, sandbox.ErrUnavailable, sandbox.ErrExhausted} {
		var e Event
		e.Fail(sandbox.Errorf(kind, "x", "no"))
		var got sandbox.Error
		if e.Advice.Over(&got); got.Kind != kind {
			t.Errorf("%v arrives as %v", kind, got.Kind)
		}
	}
}
