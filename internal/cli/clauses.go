// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// printClauses shows clause by clause how the levels hold it; those that say the
// same in one line. A level that cannot run here is said once, before.
func (a *app) printClauses(clauses []policy.Clause, levels map[string]sandbox.Capabilities) {
	for _, level := range slices.Sorted(maps.Keys(levels)) {
		can := levels[level]
		if can.Unusable == "" {
			continue
		}
		fmt.Fprintf(a.out, "%s does not work here: %s\n", level, can.Unusable)
		if can.Remedy != "" {
			fmt.Fprintf(a.out, "  fix: %s\n", can.Remedy)
		}
	}
	for _, c := range clauses {
		fmt.Fprintf(a.out, "%-24s %s  (%s)\n", c.Name, printable(c.Value), c.From)
		for _, l := range answers(c, levels) {
			fmt.Fprintln(a.out, "  "+l)
		}
	}
}

// answers is a line for each answer that levels give about c, with their names.
func answers(c policy.Clause, levels map[string]sandbox.Capabilities) []string {
	var order []sandbox.Clause
	who := map[sandbox.Clause][]string{}
	for _, level := range slices.Sorted(maps.Keys(c.Levels)) {
		if levels[level].Unusable != "" {
			continue
		}
		answer := c.Levels[level]
		if who[answer] == nil {
			order = append(order, answer)
		}
		who[answer] = append(who[answer], level)
	}
	var lines []string
	for _, answer := range order {
		line := fmt.Sprintf("%-16s %s", strings.Join(who[answer], ", "), answer.Enforcement)
		if answer.Detail != "" {
			line += ": " + answer.Detail
		}
		if answer.Remedy != "" {
			line += " (fix: " + answer.Remedy + ")"
		}
		lines = append(lines, line)
	}
	return lines
}
