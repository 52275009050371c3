// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
)

// The kinds of errors, as OpenAI's clients know them.
const (
	kindRequest    = "invalid_request_error"
	kindPermission = "permission_error"
	kindRate       = "rate_limit_error"
	kindServer     = "server_error"
)

// fault is an error as OpenAI's API writes it, below "error".
type fault struct {
	Status  int    `json:"-"`
	Message string `json:"message"`
	Kind    string `json:"type"`
	// Param is the field that is wrong, and Code a word for programs; null when
	// there is none.
	Param *string `json:"param"`
	Code  any     `json:"code"`
}

// Error is the message.
func (f *fault) Error() string { return f.Message }

// wrong is a request whose part param cannot be meant.
func wrong(param, code, message string) error {
	f := &fault{Status: http.StatusBadRequest, Kind: kindRequest, Message: message, Code: code}
	if param != "" {
		name := sandbox.Clip(param, 200)
		f.Param = &name
	}
	return f
}

// kinds says how each kind of error is answered.
var kinds = []struct {
	of     error
	status int
	kind   string
	code   string
}{
	{sandbox.ErrInvalid, http.StatusBadRequest, kindRequest, "invalid_value"},
	{sandbox.ErrNotFound, http.StatusNotFound, kindRequest, "not_found"},
	{sandbox.ErrConflict, http.StatusConflict, kindRequest, "conflict"},
	{sandbox.ErrDenied, http.StatusForbidden, kindPermission, "denied_by_policy"},
	{sandbox.ErrUnsupported, http.StatusBadRequest, kindRequest, "unsupported"},
	// Clients try again after a 429 and a 503.
	{sandbox.ErrExhausted, http.StatusTooManyRequests, kindRate, "rate_limit_exceeded"},
	{sandbox.ErrUnavailable, http.StatusServiceUnavailable, kindServer, "unavailable"},
}

// asFault is err as this API says it. What is no error for people is not shown,
// since it may name things of the host.
func asFault(err error) *fault {
	var own *fault
	if errors.As(err, &own) {
		return own
	}
	f := &fault{Status: http.StatusInternalServerError, Kind: kindServer, Message: "internal error"}
	for _, k := range kinds {
		if errors.Is(err, k.of) {
			f.Status, f.Kind, f.Code = k.status, k.kind, k.code
			break
		}
	}
	var inside *sandbox.AgentError
	var big *http.MaxBytesError
	var many *api.TooMany
	var e *sandbox.Error
	switch {
	case errors.As(err, &inside):
		if f.Message = inside.Message; inside.Status != http.StatusInternalServerError {
			f.Status = inside.Status // else its kind says more
		}
		if f.Status < 500 && f.Kind == kindServer {
			f.Kind = kindRequest
		}
	case errors.As(err, &big):
		f.Status, f.Kind, f.Code, f.Message = http.StatusRequestEntityTooLarge, kindRequest, "too_large", "the request is too long"
	case errors.As(err, &many):
		f.Status, f.Kind, f.Code, f.Message = http.StatusRequestEntityTooLarge, kindRequest, "too_large", many.Error()
	case f.Code == nil:
	case errors.As(err, &e): // its cause stays here
		if f.Message = e.Problem; e.Op != "" {
			f.Message = e.Op + ": " + e.Problem
		}
		if e.Rule != "" {
			f.Message += " (" + e.Rule + ")"
		}
		if h := sandbox.Hint(err); h != "" {
			f.Message += "; " + h
		}
	}
	return f
}

// writeFault answers with err, if the client takes it.
func writeFault(w http.ResponseWriter, err error) {
	f := asFault(err)
	b, merr := json.Marshal(map[string]*fault{"error": f})
	if merr != nil {
		b = []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	if f.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Status)
	w.Write(append(b, '\n'))
}
