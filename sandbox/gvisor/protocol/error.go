// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"

	"github.com/caisson-run/caisson/sandbox"
)

// Advice is what a *sandbox.Error says besides its text: without it a caller would not
// learn what can be done, nor a frontend which status to answer with.
type Advice struct {
	Kind string `json:"kind,omitempty"`
	Hint string `json:"hint,omitempty"`
}

// Fail has e tell of err.
func (e *Event) Fail(err error) {
	e.Error, e.Advice = err.Error(), nil
	var known *sandbox.Error
	if !errors.As(err, &known) {
		return
	}
	e.Advice = &Advice{Hint: sandbox.Hint(err)}
	if known.Kind != nil {
		e.Advice.Kind = known.Kind.Error()
	}
}

// Over puts the advice, which may be nil, in the place of what the owner would have
// made of the text alone.
func (a *Advice) Over(err *sandbox.Error) {
	if a == nil {
		return
	}
	if a.Hint != "" {
		err.Hint = a.Hint
	}
	for _, kind := range []error{sandbox.ErrInvalid, sandbox.ErrNotFound, sandbox.ErrUnsupported, sandbox.ErrDenied,
		sandbox.ErrConflict, sandbox.ErrUnavailable, sandbox.ErrExhausted} {
		if kind.Error() == a.Kind {
			err.Kind = kind
		}
	}
}
