// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// printed is the line of a promise.
func printed(t *testing.T, c *Column, promise, state string) string {
	t.Helper()
	one := *c
	one.Promises = []Cell{{Name: promise, State: state}}
	text, err := json.Marshal(&one)
	if err != nil {
		t.Fatal(err)
	}
	return recordMark + string(text) + "\n"
}

// A column is gathered over several runs, in any order, and kept when it is whole.
func TestGather(t *testing.T) {
	said := newColumn("some", sandbox.Capabilities{})
	dir, all, c := t.TempDir(), promises(""), new(Column)
	if added, err := c.Add("--- PASS: " + all[0]); added || err != nil {
		t.Errorf("another line was taken: %v, %v", added, err)
	}
	for i, name := range slices.Backward(all) {
		if err := c.Write(dir); err == nil {
			t.Fatalf("a column of %d promises was kept", len(all)-1-i)
		}
		for _, state := range []string{notHere, kept} { // the last one counts
			if added, err := c.Add(printed(t, said, name, state)); !added || err != nil {
				t.Fatalf("%s: %v, %v", name, added, err)
			}
		}
	}
	if err := c.Write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, said.File()))
	if err != nil {
		t.Fatal(err)
	}
	var got Column
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if names := namesOf(got.Promises); !slices.Equal(names, all) {
		t.Errorf("got %q", names)
	}
	if i := slices.IndexFunc(got.Promises, func(c Cell) bool { return c.State != kept }); i >= 0 {
		t.Errorf("%+v: what was seen first counts", got.Promises[i])
	}

	some := &Column{Promises: []Cell{{Name: all[0], State: kept}}}
	if err := some.WritePart(dir); err != nil {
		t.Fatal(err)
	}
	var part Column
	text, err = os.ReadFile(filepath.Join(dir, some.File()))
	if err := errors.Join(err, json.Unmarshal(text, &part)); err != nil {
		t.Fatal(err)
	}
	if names := namesOf(part.Promises); !slices.Equal(names, all) || mark(part.Promises, all[0]) != "✓" || mark(part.Promises, all[1]) != "?" {
		t.Errorf("a column of one promise is %+v", part.Promises)
	}
	if faults := got.faults(&part); len(faults) != 0 {
		t.Errorf("what was not seen is held against the level: %q", faults)
	}
	part.Promises[0].State = notHere
	if faults := got.faults(&part); len(faults) != 1 {
		t.Errorf("one promise is told of otherwise: %q", faults)
	}

	other := *said
	other.Setting = "somebody else"
	if _, err := c.Add(printed(t, &other, all[0], kept)); err == nil {
		t.Error("another setting was taken for the same column")
	}
	other = *said
	other.Limits = slices.Clone(other.Limits)
	other.Limits[0].Why += "not quite"
	if _, err := c.Add(printed(t, &other, all[0], kept)); err == nil {
		t.Error("one column has two words about a limit")
	}
	if _, err := c.Add(recordMark + "{"); err == nil {
		t.Error("half a line was taken")
	}
}

// A pattern finds its promise alone, by the name that package testing gives it.
func TestPattern(t *testing.T) {
	for _, theme := range themes() {
		t.Run(theme.name, func(t *testing.T) {
			for _, test := range theme.tests {
				promise := theme.name + ": " + test.name
				t.Run(test.name, func(t *testing.T) {
					path := strings.Split(t.Name(), "/")[1:]
					for _, other := range promises("") {
						if got := matches(Pattern(other), path); got != (other == promise) {
							t.Errorf("%s: %v for %s", Pattern(other), got, promise)
						}
					}
				})
			}
		})
	}
}

// matches is how package testing reads a pattern for -test.skip.
func matches(pattern string, path []string) bool {
	parts := strings.Split(pattern, "/")
	if len(parts) != len(path) {
		return false
	}
	for i, p := range parts {
		if !regexp.MustCompile(p).MatchString(path[i]) {
			return false
		}
	}
	return true
}
