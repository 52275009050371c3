// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"encoding/json"
	"math"
	"time"
)

// Args are arguments of a tool that fit its schema: what has another type than
// asked for is not there.
type Args map[string]any

// Text is a string; empty where there is none.
func (a Args) Text(name string) string {
	s, _ := a[name].(string)
	return s
}

// Given reports whether there is an argument of that name.
func (a Args) Given(name string) bool {
	_, ok := a[name]
	return ok
}

// Texts are the strings of a list.
func (a Args) Texts(name string) []string {
	list, _ := a[name].([]any)
	out := make([]string, 0, len(list))
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// Table are the strings of an object, by name; nil where there are none.
func (a Args) Table(name string) map[string]string {
	m, _ := a[name].(map[string]any)
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k], _ = v.(string)
	}
	return out
}

// Whole is a whole number, which may be written 2.0.
func (a Args) Whole(name string, otherwise int64) int64 {
	n, ok := a[name].(json.Number)
	f, err := n.Float64()
	if !ok || err != nil {
		return otherwise
	}
	return int64(f)
}

// Seconds is a time; 0 where none is given.
func (a Args) Seconds(name string) time.Duration {
	n, ok := a[name].(json.Number)
	f, err := n.Float64()
	if !ok || err != nil || f <= 0 || f > math.MaxInt32 {
		return 0
	}
	return max(time.Duration(f*float64(time.Second)), time.Millisecond)
}
