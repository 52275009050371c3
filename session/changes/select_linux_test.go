// SPDX-License-Identifier: Apache-2.0

package changes

import (
	stdcmp "cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

// What is asked for is what is applied.
func TestSelection(t *testing.T) {
	for name, tc := range map[string]struct {
		o    ApplyOptions
		want []string // applied
		left []string
		err  error
		say  string
	}{
		"all":                               {want: []string{"Src", "Src/secret", "src", "src/a.go", "src/sub", "src/sub/b.go"}, left: []string{"Makefile", "bin/run", "ci/Jenkinsfile"}},
		"a file":                            {o: ApplyOptions{Paths: []string{"src/sub/b.go"}}, want: []string{"src", "src/sub", "src/sub/b.go"}},
		"a directory":                       {o: ApplyOptions{Paths: []string{"src/"}}, want: []string{"src", "src/a.go", "src/sub", "src/sub/b.go"}},
		"a glob":                            {o: ApplyOptions{Paths: []string{"**/*.go"}}, want: []string{"src", "src/a.go", "src/sub", "src/sub/b.go"}},
		"a glob of one directory":           {o: ApplyOptions{Paths: []string{"src/*.go"}}, want: []string{"src", "src/a.go"}},
		"a directory with one that is held": {o: ApplyOptions{Paths: []string{"bin"}}, left: []string{"bin/run"}},
		"one that is held":                  {o: ApplyOptions{Paths: []string{"Makefile"}}, err: sandbox.ErrDenied, say: "it is held back: Makefile: a build or task runner runs it"},
		"named":                             {o: ApplyOptions{Paths: []string{"src/a.go"}, Held: []string{"Makefile", "bin/run"}}, want: []string{"Makefile", "bin", "bin/run", "src", "src/a.go"}},
		"nothing like it":                   {o: ApplyOptions{Paths: []string{"none"}}, err: sandbox.ErrNotFound, say: "no such path"},
		"none that is held":                 {o: ApplyOptions{Held: []string{"none"}}, err: sandbox.ErrNotFound, say: "no such path"},
		"rules":                             {o: ApplyOptions{Rules: []Rules{{Apply: []string{"src/**", "Makefile"}, Hold: []string{"**/sub"}}}}, want: []string{"src", "src/a.go"}, left: []string{"Makefile", "src/sub", "src/sub/b.go"}},
		"rules and a directory":             {o: ApplyOptions{Paths: []string{"src"}, Rules: []Rules{{Apply: []string{"src/*.go"}}}}, want: []string{"src", "src/a.go"}},
		"rules without any":                 {o: ApplyOptions{Rules: []Rules{{}}}},
		"rules and a path":                  {o: ApplyOptions{Paths: []string{"Src/secret"}, Rules: []Rules{{Apply: []string{"src/**"}}}}, err: sandbox.ErrDenied, say: "no rule applies it"},
		"rules in another case":             {o: ApplyOptions{Rules: []Rules{{Apply: []string{"**"}, Hold: []string{"SRC/**"}}}}, left: []string{"Makefile", "Src", "Src/secret", "bin/run", "ci/Jenkinsfile", "src", "src/a.go", "src/sub", "src/sub/b.go"}},
		"rules hold what is named":          {o: ApplyOptions{Held: []string{"Makefile"}, Rules: []Rules{{Apply: []string{"Src/*"}, Hold: []string{"Make*"}}}}, want: []string{"Src", "Src/secret"}, left: []string{"Makefile"}},
		"too many":                          {o: ApplyOptions{Rules: []Rules{{Apply: []string{"src/**"}, MaxFiles: 1}}}, err: sandbox.ErrDenied, say: "it would apply 2 files, and the rules allow 1"},
		"as many":                           {o: ApplyOptions{Rules: []Rules{{Apply: []string{"src/**"}, MaxFiles: 2}}}, want: []string{"src", "src/a.go", "src/sub", "src/sub/b.go"}},
		"no glob":                           {o: ApplyOptions{Rules: []Rules{{Apply: []string{"[a-z]"}}}}, err: sandbox.ErrInvalid, say: "sets and choices are not taken"},
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t, nil)
			set := ws.keep(newTar().file("src/a.go", "x", 0o644).file("src/sub/b.go", "x", 0o644).file("Src/secret", "x", 0o644).file("Makefile", "x", 0o644).
				dir("bin").file("bin/run", "x", 0o755).file("ci/Jenkinsfile", "x", 0o644).bytes())
			a, err := ws.apply(set, tc.o)
			if !errors.Is(err, tc.err) || err != nil && !strings.Contains(err.Error(), tc.say) {
				t.Fatalf("%v, want %v", err, tc.err)
			}
			if err != nil {
				if got := readTree(t, ws.dir); len(got) > 0 {
					t.Errorf("%v is applied", got)
				}
				return
			}
			var left []string
			for _, l := range a.Left {
				left = append(left, l.Path)
			}
			if diff := cmp.Diff(tc.want, a.Paths); diff != "" {
				t.Errorf("applied: -want +got\n%s", diff)
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("left: -want +got\n%s", diff)
			}
		})
	}
}

// Deep trees are chosen from in time that grows with the number of paths.
func TestSelectionDeep(t *testing.T) {
	const files, depth = 2000, 160
	apart, together := &Set{}, &Set{}
	chain := strings.Repeat("d/", depth)
	for i := range files {
		apart.Entries = append(apart.Entries, Entry{Path: fmt.Sprintf("%04d/%sf", i, chain), Op: Add, Type: File})
	}
	for at := range strings.SplitAfterSeq(strings.TrimSuffix(chain, "/"), "/") {
		above := "s"
		if n := len(together.Entries); n > 0 {
			above = together.Entries[n-1].Path
		}
		together.Entries = append(together.Entries, Entry{Path: above + "/" + strings.TrimSuffix(at, "/"), Op: Add, Type: Dir})
	}
	for i := range files {
		together.Entries = append(together.Entries, Entry{Path: fmt.Sprintf("s/%s%04d", chain, i), Op: Add, Type: File})
	}
	for set, rules := range map[*Set][]Rules{apart: nil, together: {{Apply: []string{"s/**"}, Hold: []string{"**/x", "**/Y/**"}}}} {
		s, err := choose(set, &ApplyOptions{Rules: rules})
		if err != nil || slices.Contains(s.chosen, false) {
			t.Errorf("not all of %d entries are chosen: %v", len(set.Entries), err)
		}
	}
}

func TestComparePaths(t *testing.T) {
	paths := []string{"", "a", "a/b", "a/b/c", "a/c", "a!", "a.b", "a.b/c", "ab", "b", "é/x"}
	for i, a := range paths {
		for j, b := range paths {
			if got := comparePaths(a, b); got != stdcmp.Compare(i, j) {
				t.Errorf("%q and %q: %d", a, b, got)
			}
		}
	}
}
