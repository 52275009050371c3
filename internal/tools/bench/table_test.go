// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	tab := &table{about: []string{"date: today", "load: 1"}, rows: []row{
		{what: "start", who: "root", ours: "84.0 ms (80–90)", theirs: "140.0 ms (130–150)", ratio: "0.60 (0.60)", cpu: "50 : 90 ms = 0.6", goal: "≤ 0.60", runs: "40"},
		{what: "size", ours: "47 MB", notes: []string{"first\nnote", "second"}},
		{what: "hostile | name\nand line", notes: []string{"third"}},
	}}
	want := `- date: today
- load: 1

| what                        | as   | caisson         | runsc              | ratio       | processor time   | goal   | runs |
|-----------------------------|------|-----------------|--------------------|-------------|------------------|--------|------|
| start                       | root | 84.0 ms (80–90) | 140.0 ms (130–150) | 0.60 (0.60) | 50 : 90 ms = 0.6 | ≤ 0.60 | 40   |
| size [1] [2]                | –    | 47 MB           | –                  | –           | –                | –      | –    |
| hostile / name and line [3] | –    | –               | –                  | –           | –                | –      | –    |

[1] first note
[2] second
[3] third
`
	if got := tab.String(); got != want {
		t.Error(cmp.Diff(want, got))
	}
}
