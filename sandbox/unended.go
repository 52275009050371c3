// SPDX-License-Identifier: Apache-2.0

package sandbox

import "errors"

// ErrUnended is in the chain of an error about a sandbox that was told to end and has
// not.
var ErrUnended = errors.New("it has not ended in time")

// Unended is the error for that: left says what is left of the sandbox, and after how
// long. It is of kind [ErrUnavailable].
func Unended(op, left string) error {
	return &Error{Op: op, Kind: ErrUnavailable, Problem: left, Cause: ErrUnended,
		Hint: "what waits for a disk or a file server ends when that answers; the rest is taken away then, or when the next caisson starts"}
}
