// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

var (
	update = flag.Bool("update", false, "write docs/levels.md anew")
	gather = flag.String("gather", "", "keep the column that this file tells of, as far as it does: what CAISSON_LEVELS=- has printed")
	byHand = flag.String("by-hand", "", "with -gather: on what it was seen, where no test of ours runs it")
)

const tableFile = "../../docs/levels.md"

// docs/levels.md is made of the columns, and holds nothing else.
func TestTable(t *testing.T) {
	if *gather != "" {
		keep(t, *gather)
		return // the columns of this program are older
	}
	all, err := Columns()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("there is no column")
	}
	want := table(all)
	if *update {
		if err := os.WriteFile(tableFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the columns say: make levels", tableFile)
	}
}

// keep makes a column of what a suite has printed, over as many runs as it took.
func keep(t *testing.T, file string) {
	t.Helper()
	printed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := new(Column)
	for line := range strings.Lines(string(printed)) {
		if _, err := c.Add(line); err != nil {
			t.Fatal(err)
		}
	}
	if c.Level == "" || *byHand == "" {
		t.Fatalf("%s tells of the level %q, seen on %q", file, c.Level, *byHand)
	}
	c.ByHand = *byHand
	t.Logf("%s: not seen: %q", c.File(), c.Lacks(""))
	if err := c.WritePart("levels"); err != nil {
		t.Fatal(err)
	}
}

// A column that was seen by hand says so, and what is seen elsewhere is no fault.
func TestByHand(t *testing.T) {
	all, err := Columns()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(c Column) bool { return c.ByHand != "" })
	if i < 0 {
		t.Skip("no recorded column was seen by hand")
	}
	c := all[i]
	if text := table(all[i : i+1]); !strings.Contains(text, c.ByHand) || !strings.Contains(text, "<br>by hand |") {
		t.Errorf("it is not marked:\n%s", text)
	}
	c.Promises = slices.Clone(c.Promises)
	c.Promises[0] = Cell{Name: c.Promises[0].Name, State: notHere, Why: "another version"}
	if note, faults := c.Check(); len(faults) > 0 || !strings.Contains(note, c.ByHand) || !strings.Contains(note, "another version") {
		t.Errorf("%q, %q", note, faults)
	}
}

// Every column tells of every ability, limit and promise that there is today,
// and of no other.
func TestColumnsAreWhole(t *testing.T) {
	all, err := Columns()
	if err != nil {
		t.Fatal(err)
	}
	today := newColumn("", sandbox.Capabilities{})
	for _, name := range promises("") {
		today.Promises = append(today.Promises, Cell{Name: name})
	}
	for _, c := range all {
		for _, part := range [][2][]Cell{{c.Features, today.Features}, {c.Limits, today.Limits}, {c.Promises, today.Promises}} {
			if got, want := namesOf(part[0]), namesOf(part[1]); !slices.Equal(got, want) {
				t.Errorf("%s: make levels\nit has %q\nwant %q", c.File(), got, want)
			}
		}
	}
}

func namesOf(cells []Cell) (names []string) {
	for _, c := range cells {
		names = append(names, c.Name)
	}
	return names
}

const head = `# What each level does

Made by ` + "`make levels`" + ` out of what the conformance suite saw; nothing here is written by hand, and the suite fails where
it is not true. A setting is who runs caisson and which control groups that user can make.
` + "`caisson doctor` and `caisson policy explain`" + ` answer the same questions for your own host.

✓ yes, enforced, or kept · ~ emulated: held, but coarser · – not there; a policy that asks for it is refused by name.
? not seen to be kept there yet. The reasons are below each table.
`

func table(all []Column) string {
	var b strings.Builder
	b.WriteString(head)
	for i := range all {
		if c := &all[i]; c.ByHand != "" {
			fmt.Fprintf(&b, "\n`make test` does not make the column of %s (%s) again: the suite was run by hand on %s.\nIt says nothing of other versions.\n", c.Level, c.Setting, c.ByHand)
		}
	}
	part(&b, "Abilities", all, func(c *Column) []Cell { return c.Features })
	part(&b, "Limits", all, func(c *Column) []Cell { return c.Limits })
	part(&b, "Promises", all, func(c *Column) []Cell { return c.Promises })
	return b.String()
}

// part is one table: a row for each name, a column for each setting.
func part(b *strings.Builder, title string, all []Column, cells func(*Column) []Cell) {
	fmt.Fprintf(b, "\n## %s\n\n|", title)
	for i := range all {
		fmt.Fprintf(b, " | %s<br>%s", all[i].Level, all[i].Setting)
		if all[i].ByHand != "" {
			b.WriteString("<br>by hand")
		}
	}
	b.WriteString(" |\n|---" + strings.Repeat("|:-:", len(all)) + "|\n")
	var names []string
	for i := range all {
		for _, cell := range cells(&all[i]) {
			if !slices.Contains(names, cell.Name) {
				names = append(names, cell.Name)
			}
		}
	}
	for _, name := range names {
		fmt.Fprintf(b, "| %s", name)
		for i := range all {
			fmt.Fprintf(b, " | %s", mark(cells(&all[i]), name))
		}
		b.WriteString(" |\n")
	}
	if list := reasons(all, cells); len(list) > 0 {
		b.WriteString("\n" + strings.Join(list, ""))
	}
}

// reasons says how or why not, once for all settings in which a level says the
// same.
func reasons(all []Column, cells func(*Column) []Cell) (lines []string) {
	type reason struct{ level, name, why string }
	var order []reason
	settings, of := map[reason][]string{}, map[string]int{}
	for i := range all {
		of[all[i].Level]++
		for _, cell := range cells(&all[i]) {
			r := reason{all[i].Level, cell.Name, cell.Why}
			if cell.Why == "" {
				continue
			}
			if settings[r] == nil {
				order = append(order, r)
			}
			settings[r] = append(settings[r], all[i].Setting)
		}
	}
	for _, r := range order {
		where := ""
		if len(settings[r]) < of[r.level] {
			where = " (" + strings.Join(settings[r], "; ") + ")"
		}
		lines = append(lines, fmt.Sprintf("- %s, %s%s: %s\n", r.level, r.name, where, r.why))
	}
	return lines
}

func mark(cells []Cell, name string) string {
	i := slices.IndexFunc(cells, func(c Cell) bool { return c.Name == name })
	if i < 0 {
		return "?"
	}
	switch cells[i].State {
	case "yes", "enforced", kept:
		return "✓"
	case "emulated":
		return "~"
	case notSeen:
		return "?"
	}
	return "–"
}
