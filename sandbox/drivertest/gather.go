// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Chapters are the suite's, in the order in which they are tried.
func Chapters() (names []string) {
	for _, theme := range themes() {
		names = append(names, theme.name)
	}
	return names
}

// promises are those of one chapter, or of all where it is empty, as a column has
// them.
func promises(chapter string) (names []string) {
	for _, theme := range themes() {
		if chapter != "" && chapter != theme.name {
			continue
		}
		for _, test := range theme.tests {
			names = append(names, theme.name+": "+test.name)
		}
	}
	return names
}

// Add takes in a promise from a line that a test binary has printed; on any other
// line it does nothing. What is gathered over several runs must be about one level
// in one setting, that says one thing of itself.
func (c *Column) Add(line string) (added bool, err error) {
	_, text, ok := strings.Cut(line, recordMark)
	if !ok {
		return false, nil
	}
	var one Column
	if err := json.Unmarshal([]byte(text), &one); err != nil {
		return false, err
	}
	if c.Level == "" {
		*c = one
		return true, nil
	}
	if one.Level != c.Level || one.Setting != c.Setting || !reflect.DeepEqual(one.Features, c.Features) || !reflect.DeepEqual(one.Limits, c.Limits) {
		return false, fmt.Errorf("%s (%s) said one thing of itself, and now %s (%s) another", c.Level, c.Setting, one.Level, one.Setting)
	}
	for _, cell := range one.Promises {
		// The last that was seen counts.
		c.Promises = slices.DeleteFunc(c.Promises, func(old Cell) bool { return old.Name == cell.Name })
		c.Promises = append(c.Promises, cell)
	}
	return true, nil
}

// Lacks are the promises of a chapter, or of all where it is empty, that the column
// does not tell of.
func (c *Column) Lacks(chapter string) []string {
	return slices.DeleteFunc(promises(chapter), func(name string) bool {
		return slices.ContainsFunc(c.Promises, func(cell Cell) bool { return cell.Name == name })
	})
}

// Pattern is what -test.run or, together with others after "|", -test.skip takes for a
// promise, without the test's own name.
func Pattern(promise string) string {
	chapter, name, _ := strings.Cut(promise, ": ")
	// Package testing makes these of blanks, and more levels of slashes.
	name = strings.ReplaceAll(name, " ", "_")
	return "^" + chapter + "$/^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
}

// WritePart keeps a column that may not be whole: it says of what it lacks that it
// was not seen.
func (c *Column) WritePart(dir string) error {
	part := *c
	part.Promises = slices.Clone(c.Promises)
	for _, name := range c.Lacks("") {
		part.Promises = append(part.Promises, Cell{Name: name, State: notSeen})
	}
	return part.Write(dir)
}

// Write keeps a column that is whole.
func (c *Column) Write(dir string) error {
	if lacks := c.Lacks(""); len(lacks) > 0 {
		return fmt.Errorf("not every promise was seen to be kept: %q", lacks)
	}
	order := promises("")
	slices.SortFunc(c.Promises, func(a, b Cell) int { return slices.Index(order, a.Name) - slices.Index(order, b.Name) })
	text, err := json.MarshalIndent(c, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, c.File()), append(text, '\n'), 0o644)
}
