// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// apiError is an error of the control plane and of /files: clients look at the
// code in the body more often than at the status.
type apiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *apiError) Error() string { return e.Message }

// The codes of the Connect protocol that this frontend answers with.
const (
	codeInvalid         = "invalid_argument"
	codeUnauthenticated = "unauthenticated"
	codeDenied          = "permission_denied"
	codeNotFound        = "not_found"
	codeExists          = "already_exists"
	codePrecondition    = "failed_precondition"
	codeExhausted       = "resource_exhausted"
	codeUnimplemented   = "unimplemented"
	codeUnavailable     = "unavailable"
	codeDeadline        = "deadline_exceeded"
	codeInternal        = "internal"
	codeUnknown         = "unknown"
)

// connectStatus is the HTTP status of a unary call that ends with a code:
// https://connectrpc.com/docs/protocol/#error-codes.
var connectStatus = map[string]int{
	codeInvalid: 400, codeUnauthenticated: 401, codeDenied: 403, codeNotFound: 404, codeExists: 409, codePrecondition: 400,
	codeExhausted: 429, codeUnimplemented: 501, codeUnavailable: 503, codeDeadline: 504, codeInternal: 500, codeUnknown: 500,
}

// connectError is an error of envd's RPCs.
type connectError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *connectError) Error() string { return e.Message }

// kinds says, for each kind of error, what each of the two APIs answers.
var kinds = []struct {
	kind    error
	status  int
	connect string
}{
	{persistent.ErrNobody, http.StatusUnauthorized, codeUnauthenticated},
	{sandbox.ErrInvalid, http.StatusBadRequest, codeInvalid},
	{sandbox.ErrNotFound, http.StatusNotFound, codeNotFound},
	{sandbox.ErrConflict, http.StatusConflict, codeExists},
	{sandbox.ErrDenied, http.StatusForbidden, codeDenied},
	{sandbox.ErrUnsupported, http.StatusNotImplemented, codeUnimplemented},
	{sandbox.ErrExhausted, http.StatusTooManyRequests, codeExhausted},
	{sandbox.ErrUnavailable, http.StatusServiceUnavailable, codeUnavailable},
}

// asAPI is err as the control plane says it. What is not one of ours is not
// shown: it may name things of the host.
func asAPI(err error) *apiError {
	var own *apiError
	if errors.As(err, &own) {
		return own
	}
	var inside *sandbox.AgentError
	if errors.As(err, &inside) {
		return &apiError{inside.Status, inside.Message}
	}
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return &apiError{http.StatusRequestEntityTooLarge, "the request is too long"}
	}
	var many *api.TooMany
	if errors.As(err, &many) {
		return &apiError{http.StatusRequestEntityTooLarge, many.Error()}
	}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return &apiError{k.status, sentence(err)}
		}
	}
	return &apiError{http.StatusInternalServerError, "internal error"}
}

// asConnect is err as an RPC says it.
func asConnect(err error) *connectError {
	var own *connectError
	if errors.As(err, &own) {
		return own
	}
	var inside *sandbox.AgentError
	if errors.As(err, &inside) {
		return &connectError{inside.Code, inside.Message}
	}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return &connectError{k.connect, sentence(err)}
		}
	}
	return &connectError{codeInternal, "internal error"}
}

// sentence is what is wrong, which rule says so, and what helps. Causes stay
// here.
func sentence(err error) string {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	s := e.Op + ": " + e.Problem
	if e.Rule != "" && !strings.Contains(s, e.Rule) {
		s += " (" + e.Rule + ")"
	}
	if h := sandbox.Hint(err); h != "" {
		s += "; " + h
	}
	return s
}

// writeJSON answers with v, if the client takes it. It is for answers, never for
// streams.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"code":500,"message":"unwritable answer"}`)
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b)
}

// answerTime is how long a client may take to read an answer.
const answerTime = time.Minute

func writeAPIError(w http.ResponseWriter, err error) {
	e := asAPI(err)
	writeJSON(w, e.Code, e)
}

func writeConnectError(w http.ResponseWriter, err error) {
	e := asConnect(err)
	writeJSON(w, connectStatus[e.Code], e)
}
