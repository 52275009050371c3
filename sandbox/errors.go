// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// The kinds of error. Frontends alone map them to exit codes and HTTP statuses.
// Test with errors.Is.
var (
	ErrInvalid     = errors.New("invalid")       // the caller asked for something that cannot be meant
	ErrNotFound    = errors.New("not found")     // a named thing does not exist
	ErrUnsupported = errors.New("not supported") // this level or host cannot do it
	ErrDenied      = errors.New("denied")        // policy refuses it
	ErrConflict    = errors.New("conflict")      // it exists already, or is in another state
	ErrUnavailable = errors.New("unavailable")   // it would work at another time: full disk, dead engine
	ErrExhausted   = errors.New("exhausted")     // a quota of the caller's is used up
)

// ErrMisfit is the cause of an error about memory that was kept and cannot be gone on with
// here: another version or another processor wrote it, or it is damaged. What lies next to it
// may still be good.
var ErrMisfit = errors.New("the memory does not fit")

// ErrRunsOn is the cause of an error of a Snapshot that was refused before anything was written
// down: the sandbox, which is a Pauser, goes on as before.
var ErrRunsOn = errors.New("it goes on as before")

// Error is an error for people: what was tried, what is wrong, and what to do.
//
// Its text is one sentence, "op: problem", and the hint on its own. It wraps a
// kind from the list above and, where there is one, the cause.
type Error struct {
	Op      string // "mount ./data.csv", "start sandbox"
	Kind    error  // one of the kinds
	Problem string // "there is no such file"
	Hint    string // "check the path, or drop --mount"; may be empty
	Rule    string // what refused it: "policy.yaml:12", "built-in: host secrets"; may be empty
	Cause   error  // may be nil
}

// Error is "op: problem: cause".
func (e *Error) Error() string {
	s := e.Problem
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap gives the kind and the cause to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	return errs
}

// Hint returns the hint of the first Error in err's chain that has one.
func Hint(err error) string {
	for e := (*Error)(nil); errors.As(err, &e); err = e.Cause {
		if e.Hint != "" {
			return e.Hint
		}
	}
	return ""
}

// Errorf makes an Error without a hint.
func Errorf(kind error, op, format string, args ...any) *Error {
	return &Error{Op: op, Kind: kind, Problem: fmt.Sprintf(format, args...)}
}

// NoDirectory is the error of every level for a working directory that a program cannot
// begin in; why says it as the kernel does.
func NoDirectory(dir, why string) *Error {
	return &Error{Op: "working directory " + dir, Kind: ErrInvalid, Problem: why, Hint: NoDirectoryHint}
}

// NoDirectoryHint is what can be done about it.
const NoDirectoryHint = "name a directory that is there inside, or mount one at that place"

// AgentError is an error that the agent inside answered with. It wraps an Error, whose text
// is safe to show. Status and Code are from short lists, Message is the guest's own.
type AgentError struct {
	// Status is the HTTP status: 400, 401, 403, 404, 406, 409, 412, 416, 429, 501, 507, or
	// 500 for any other.
	Status int
	// Code is the Connect protocol's, such as "not_found"; "unknown" when the agent says
	// none, as it does for files.
	Code string
	// Message is at most 4 KiB of valid UTF-8.
	Message string
	// Err says what was tried, and has the kind.
	Err *Error
}

// Error is the text of Err.
func (e *AgentError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *AgentError) Unwrap() error { return e.Err }

// Quoted shows a name that may hold anything in a message. Plain names stay as they are;
// others are written as Go writes strings.
func Quoted(name string) string {
	if q := strconv.Quote(name); q != `"`+name+`"` || name == "" {
		return q
	}
	return name
}

// Clip cuts s to maximum bytes, at the end of a character, and puts … behind it. What is no
// longer stays as it is.
func Clip(s string, maximum int) string {
	if len(s) <= maximum {
		return s
	}
	for i := maximum; i > 0 && maximum-i < utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i] + "…"
		}
	}
	return s[:maximum] + "…" // it is no text
}
