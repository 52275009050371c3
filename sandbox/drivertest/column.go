// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// A Column is what one level was seen to do in one setting: what it says of
// itself there, and how each promise of the suite came out. docs/levels.md is
// made of these.
type Column struct {
	Level   string `json:"level"`
	Setting string `json:"setting"` // "root, cgroup v1"
	// ByHand is on what a person has run the suite, where no test can: of another
	// version of that the column says nothing.
	ByHand   string `json:"by_hand,omitempty"`
	Features []Cell `json:"features"`
	Limits   []Cell `json:"limits"`
	Promises []Cell `json:"promises"`
}

// Cell is how one thing came out.
type Cell struct {
	Name  string `json:"name"`
	State string `json:"state"`         // yes, no; enforced, emulated, off; kept, not here, not seen
	Why   string `json:"why,omitempty"` // a phrase
}

// States of a promise.
const (
	kept    = "kept"
	notHere = "not here" // the level says that it cannot
	// notSeen: it was not seen there yet. A column with such is half the truth, and
	// says so.
	notSeen = "not seen"
)

// recordEnv names the directory that columns are written to; "-" is a line for each
// promise on standard output, after recordMark, for a test binary that can write
// nowhere, or that may be ended before it has seen all.
const (
	recordEnv  = "CAISSON_LEVELS"
	recordMark = "levels column: "
)

//go:embed levels
var columns embed.FS

// setting says what levels can build on here.
func setting() string {
	who := "user"
	if os.Geteuid() == 0 {
		who = "root"
	}
	h := cgroup.Detect()
	if h.Why != "" {
		return who + ", no control groups"
	}
	return fmt.Sprintf("%s, cgroup v%d", who, h.Version)
}

// File is the name under which a column is kept.
func (c *Column) File() string {
	return strings.NewReplacer(" ", "-", ",", "", "(", "", ")", "", ":", "_").Replace(c.Level+" "+c.Setting) + ".json"
}

// newColumn writes down what a level says of itself.
func newColumn(level string, caps sandbox.Capabilities) *Column {
	c := &Column{Level: level, Setting: setting()}
	v := reflect.ValueOf(caps)
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Bool {
			state := "no"
			if v.Field(i).Bool() {
				state = "yes"
			}
			c.Features = append(c.Features, Cell{Name: v.Type().Field(i).Name, State: state})
		}
	}
	for _, name := range sandbox.LimitNames() {
		l := caps.Limits[name]
		c.Limits = append(c.Limits, Cell{Name: string(name), State: string(l.Enforcement), Why: l.Detail})
	}
	return c
}

// publish writes the column down when that was asked for. Otherwise, on a host
// like the one of the table, the table must be true.
func (c *Column) publish(t *testing.T) {
	t.Helper()
	switch to := os.Getenv(recordEnv); to {
	case "":
		note, faults := c.Check()
		if note != "" {
			t.Log(note)
		}
		for _, f := range faults {
			t.Error(f)
		}
	case "-": // tell has done it
	default:
		if err := c.Write(to); err != nil {
			t.Fatal(err)
		}
	}
}

// tell prints a promise that was seen, where that was asked for.
func (c *Column) tell(t *testing.T, cell Cell) {
	t.Helper()
	if os.Getenv(recordEnv) != "-" {
		return
	}
	one := *c
	one.Promises = []Cell{cell}
	line, err := json.Marshal(&one)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s%s\n", recordMark, line)
}

// Record keeps the column that a test binary has printed; run with
// CAISSON_LEVELS=-.
func Record(dir string, output []byte) error {
	c := new(Column)
	for line := range strings.Lines(string(output)) {
		if _, err := c.Add(line); err != nil {
			return err
		}
	}
	return c.Write(dir)
}

// Columns are those of the table, in the order of their files' names.
func Columns() ([]Column, error) {
	files, err := columns.ReadDir("levels")
	if err != nil {
		return nil, err
	}
	var out []Column
	for _, f := range files {
		c, err := readColumn(f.Name())
		if err != nil {
			return nil, err
		}
		if c != nil {
			out = append(out, *c)
		}
	}
	return out, nil
}

// readColumn is nil for what is no column.
func readColumn(file string) (*Column, error) {
	if !strings.HasSuffix(file, ".json") {
		return nil, nil
	}
	text, err := columns.ReadFile("levels/" + file)
	if err != nil {
		return nil, err
	}
	c := new(Column)
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// Check holds the table against what was seen. Another host may be able to
// do more or less, which is no fault, but noted; where a level says the same of
// itself as in the table, it must do the same.
func (c *Column) Check() (note string, faults []string) {
	want, err := readColumn(c.File())
	if err != nil || want == nil {
		return fmt.Sprintf("docs/levels.md has no column %q for %s", c.Setting, c.Level), nil
	}
	if !reflect.DeepEqual(c.Features, want.Features) || !reflect.DeepEqual(c.Limits, want.Limits) {
		return fmt.Sprintf("%s says other things of itself here than on the host of docs/levels.md (make levels)", c.Level), nil
	}
	faults = c.faults(want)
	if want.ByHand != "" && len(faults) > 0 {
		return fmt.Sprintf("the column of %s was seen on %s:\n%s", c.Level, want.ByHand, strings.Join(faults, "\n")), nil
	}
	return "", faults
}

// faults are promises that the table tells something else of; what was not seen for
// it says nothing.
func (c *Column) faults(want *Column) (faults []string) {
	seen := map[string]Cell{}
	for _, cell := range want.Promises {
		seen[cell.Name] = cell
	}
	for _, cell := range c.Promises {
		if seen[cell.Name] != cell && seen[cell.Name].State != notSeen {
			faults = append(faults, fmt.Sprintf("docs/levels.md says %+v of %s for %s, here it is %+v: make levels", seen[cell.Name], c.Level, c.Setting, cell))
		}
	}
	return faults
}
