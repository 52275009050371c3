// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/google/go-cmp/cmp"
)

func TestChanges(t *testing.T) {
	const none, rules = "changes: {keep: none}", `changes: {keep: workspace, apply: ["src/**"], hold: ["src/x"], max_files: 3}`
	ruled := []ChangeRules{{Apply: []string{"src/**"}, Hold: []string{"src/x"}, MaxFiles: 3}}
	workspace := "files: {workspace: {source: /w}}\n"
	keep := ChangesWish{Keep: true}
	for name, tc := range map[string]struct {
		system, file string
		wish         ChangesWish
		access       sandbox.Access
		want         *PlanChanges
		refused      string // a part of the reason
	}{
		"kept":                     {wish: keep, access: sandbox.CopyOnWrite, want: &PlanChanges{}},
		"not asked for":            {access: sandbox.CopyOnWrite},
		"nothing is kept of rw":    {wish: keep, access: sandbox.ReadWrite},
		"nor of ro":                {wish: keep, access: sandbox.ReadOnly},
		"the file says none":       {file: workspace + none, wish: keep, access: sandbox.CopyOnWrite},
		"the system's says none":   {system: workspace + none, wish: keep, access: sandbox.CopyOnWrite},
		"none is no wish's":        {file: workspace + none, wish: ChangesWish{Keep: true, Required: true}, access: sandbox.CopyOnWrite, refused: "keep: none"},
		"nor where the system's":   {system: workspace + none, file: workspace + rules, wish: keep, access: sandbox.CopyOnWrite},
		"the file keeps":           {file: workspace + rules, access: sandbox.CopyOnWrite, want: &PlanChanges{Rules: ruled, Hold: []string{"src/x"}}},
		"but is not listened to":   {file: workspace + rules, wish: ChangesWish{Discard: true}, access: sandbox.CopyOnWrite},
		"both layers have rules":   {system: workspace + rules, file: workspace + rules, access: sandbox.CopyOnWrite, want: &PlanChanges{Rules: append(ruled[:1:1], ruled[0]), Hold: []string{"src/x", "src/x"}}},
		"what there is not":        {wish: ChangesWish{Keep: true, Required: true}, access: sandbox.ReadWrite, refused: "there is none"},
		"a set to begin with":      {wish: ChangesWish{Keep: true, From: "abcd", Ignored: true}, access: sandbox.CopyOnWrite, want: &PlanChanges{From: "abcd", Ignored: true}},
		"and to keep nothing":      {wish: ChangesWish{From: "abcd"}, access: sandbox.CopyOnWrite, want: &PlanChanges{From: "abcd", Discard: true}},
		"which needs a cow one":    {wish: ChangesWish{Keep: true, From: "abcd"}, access: sandbox.ReadWrite, refused: "copy-on-write workspace"},
		"rules alone keep nothing": {file: workspace + `changes: {apply: ["**"]}`, access: sandbox.CopyOnWrite},
	} {
		t.Run(name, func(t *testing.T) {
			system, file := tc.system, tc.file
			if tc.access == sandbox.ReadWrite && (system != "" || file != "") {
				t.Fatal("the files of this table have a cow workspace")
			}
			v := policyOf(t, system, file).Decide(command(func(c *Call) {
				c.Workspace, c.Changes = &MountWish{Source: "/w", Access: tc.access}, tc.wish
			}))
			if tc.refused != "" {
				if v.Decision != Deny || !strings.Contains(v.Reason, tc.refused) || v.Hint == "" {
					t.Errorf("%s: %s (%s)", v.Decision, v.Reason, v.Hint)
				}
				return
			}
			if v.Decision != Allow {
				t.Fatalf("%s: %s", v.Decision, v.Reason)
			}
			if diff := cmp.Diff(tc.want, v.Plan.Changes); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
