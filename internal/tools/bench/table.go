// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// row is one line of the table; an empty cell is printed as a dash.
type row struct {
	what, who, ours, theirs, ratio, cpu, goal, runs string
	notes                                           []string
}

// table is what was measured, and on what.
type table struct {
	about []string // lines above it
	rows  []row
}

var head = []string{"what", "as", "caisson", "runsc", "ratio", "processor time", "goal", "runs"}

// String is Markdown that reads well on a terminal too.
func (t *table) String() string {
	lines := [][]string{head}
	var notes []string
	for _, r := range t.rows {
		what := r.what
		for _, n := range r.notes {
			notes = append(notes, n)
			what += fmt.Sprintf(" [%d]", len(notes))
		}
		cells := []string{what, r.who, r.ours, r.theirs, r.ratio, r.cpu, r.goal, r.runs}
		for i, c := range cells {
			if c == "" {
				cells[i] = "–"
			}
			// A cell must stay one, whatever a failed program wrote.
			cells[i] = strings.NewReplacer("|", "/", "\n", " ").Replace(cells[i])
		}
		lines = append(lines, cells)
	}
	width := make([]int, len(head))
	for _, l := range lines {
		for i, c := range l {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, a := range t.about {
		fmt.Fprintf(&b, "- %s\n", a)
	}
	b.WriteByte('\n')
	for i, l := range lines {
		for j, c := range l {
			fmt.Fprintf(&b, "| %s%s ", c, strings.Repeat(" ", width[j]-utf8.RuneCountInString(c)))
		}
		b.WriteString("|\n")
		if i == 0 {
			for _, w := range width {
				b.WriteString("|" + strings.Repeat("-", w+2))
			}
			b.WriteString("|\n")
		}
	}
	if len(notes) > 0 {
		b.WriteByte('\n')
	}
	for i, n := range notes {
		fmt.Fprintf(&b, "[%d] %s\n", i+1, strings.ReplaceAll(n, "\n", " "))
	}
	return b.String()
}
