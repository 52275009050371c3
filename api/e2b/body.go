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
)

const (
	// maxBody bounds a request to the control plane, in bytes.
	maxBody = 1 << 20
	// bodyPatience is how long it may take to arrive.
	bodyPatience = 30 * time.Second
)

// readBody reads a JSON object into the struct that v points to. A field that
// the struct does not have is refused by its name unless it is null, false or
// empty: a client that asks for something must not believe that it has it. An
// empty body is an empty object where mayBeEmpty says so.
func readBody(w http.ResponseWriter, r *http.Request, v any, mayBeEmpty bool) error {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyPatience))
	defer rc.SetReadDeadline(time.Time{})
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
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
	known := fieldNames(reflect.TypeOf(v).Elem())
	var refused []string
	for name, value := range all {
		// As encoding/json, which takes names in any case.
		if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) && !asksNothing(value) {
			refused = append(refused, name)
		}
	}
	if len(refused) > 0 {
		slices.Sort(refused)
		return notCarried(strings.Join(refused, ", "))
	}
	return nil
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

// fieldNames are the JSON names of a struct's fields.
func fieldNames(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
