// SPDX-License-Identifier: Apache-2.0

package interpreter

import "errors"

// What is wrong with a request. Errors of this package wrap one of these.
var (
	ErrNotFound    = errors.New("not found")
	ErrInvalid     = errors.New("invalid")
	ErrExists      = errors.New("exists")
	ErrUnsupported = errors.New("unsupported") // a language without a kernel here
	ErrExhausted   = errors.New("exhausted")   // too many contexts, or cells that wait
	ErrFailed      = errors.New("failed")      // a kernel that does not start
)

// fault is an error with its kind.
type fault struct {
	kind    error
	message string
}

func (f *fault) Error() string { return f.message }
func (f *fault) Unwrap() error { return f.kind }
