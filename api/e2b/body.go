// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api"
)

const (
	// maxBody bounds a request to the control plane, in bytes.
	maxBody = 1 << 20
	// bodyTimeout is how long it may take to arrive.
	bodyTimeout = 30 * time.Second
)

// readBody reads a JSON object into the struct that v points to. A field that
// the struct does not have is refused by its name unless it is null, false or
// empty: a client that asks for something must not believe that it has it. An
// empty body is an empty object where mayBeEmpty says so.
func readBody(w http.ResponseWriter, r *http.Request, v any, mayBeEmpty bool) error {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer rc.SetReadDeadline(time.Time{})
	b, err := io.ReadAll(http.MaxBytesReader(w, api.LimitJSON(r.Body), maxBody))
	if err != nil {
		if e := asAPI(err); e.Code == http.StatusRequestEntityTooLarge || e.Code == http.StatusTooManyRequests {
			return e
		}
		return &apiError{http.StatusBadRequest, "the request cannot be read"}
	}
	if len(bytes.TrimSpace(b)) == 0 && mayBeEmpty {
		return nil
	}
	return parseBody(b, v)
}

func parseBody(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return &apiError{http.StatusBadRequest, "the request is not the JSON that is taken here: " + err.Error()}
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil || all == nil {
		return &apiError{http.StatusBadRequest, "the request is no JSON object"}
	}
	if refused := unknown(all, reflect.TypeOf(v).Elem(), ""); len(refused) > 0 {
		slices.Sort(refused)
		return notCarried(strings.Join(refused, ", "))
	}
	return nil
}

// unknown are the fields that ask for something and that t, or a struct in it,
// does not have. Where two differ in case alone, each is looked at.
func unknown(all map[string]json.RawMessage, t reflect.Type, prefix string) (refused []string) {
	for name, value := range all {
		field, ok := fieldOf(t, name)
		if !ok {
			if !asksNothing(value) {
				refused = append(refused, prefix+name)
			}
			continue
		}
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		var inner map[string]json.RawMessage
		if field.Kind() == reflect.Struct && json.Unmarshal(value, &inner) == nil {
			refused = append(refused, unknown(inner, field, prefix+name+".")...)
		}
	}
	return refused
}

func notCarried(field string) error {
	return &apiError{http.StatusBadRequest, fmt.Sprintf("%.200q is not carried by this server, and nothing is made that lacks what was asked for; see docs/e2b.md", field)}
}

// asksNothing says that a value is null, false, or empty; a list or an object
// is when all that is in it is.
func asksNothing(raw json.RawMessage) bool {
	var v any
	return json.Unmarshal(raw, &v) == nil && empty(v)
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case float64:
		return v == 0
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !empty(e) })
	case map[string]any:
		for _, e := range v {
			if !empty(e) {
				return false
			}
		}
		return true
	}
	return false
}

// fieldOf is the type of the field that encoding/json puts a name into, which
// takes names in any case.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if strings.EqualFold(tag, name) {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}
