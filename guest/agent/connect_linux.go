// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"syscall"
)

// maxRequest bounds a unary request, in bytes.
const maxRequest = 4 << 20

// The codes of the Connect protocol that the agent uses.
const (
	codeInvalid       = "invalid_argument"
	codeNotFound      = "not_found"
	codeExists        = "already_exists"
	codePermission    = "permission_denied"
	codePrecondition  = "failed_precondition"
	codeExhausted     = "resource_exhausted"
	codeInternal      = "internal"
	codeDeadline      = "deadline_exceeded"
	codeUser          = "unauthenticated"
	codeUnimplemented = "unimplemented"
	codeUnknown       = "unknown"
)

// connectError is an error as the Connect protocol writes it.
type connectError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *connectError) Error() string { return e.Message }

// status is the HTTP status of a code.
func (e *connectError) status() int {
	switch e.Code {
	case codeInvalid, codePrecondition:
		return http.StatusBadRequest
	case codeNotFound:
		return http.StatusNotFound
	case codeExists:
		return http.StatusConflict
	case codePermission:
		return http.StatusForbidden
	case codeUser:
		return http.StatusUnauthorized
	case codeExhausted:
		return http.StatusTooManyRequests
	case codeUnimplemented:
		return http.StatusNotImplemented
	}
	return http.StatusInternalServerError
}

// asConnect finds the code for an error.
func asConnect(err error) *connectError {
	var c *connectError
	switch {
	case errors.As(err, &c):
		return c
	case errors.Is(err, errGone), errors.Is(err, fs.ErrNotExist):
		return &connectError{codeNotFound, err.Error()}
	case errors.Is(err, fs.ErrExist):
		return &connectError{codeExists, err.Error()}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return &connectError{codePermission, err.Error()}
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EINVAL),
		errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG):
		return &connectError{codeInvalid, err.Error()}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return &connectError{codeExhausted, err.Error()}
	}
	return &connectError{codeInternal, err.Error()}
}

// unary serves one JSON message for another. Unknown fields are ignored, as
// envd does.
func unary[Q, A any](f func(*http.Request, *Q) (*A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			writeError(w, &connectError{codeExhausted, err.Error()})
			return
		}
		var q Q
		if err := json.Unmarshal(b, &q); err != nil {
			writeError(w, &connectError{codeInvalid, err.Error()})
			return
		}
		a, err := f(r, &q)
		if err != nil {
			writeError(w, asConnect(err))
			return
		}
		writeJSON(w, http.StatusOK, a)
	}
}

func writeError(w http.ResponseWriter, e *connectError) { writeJSON(w, e.status(), e) }

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"code":"internal","message":"unwritable answer"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b)
}
