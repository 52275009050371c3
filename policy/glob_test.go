// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func glob(t testing.TB, s string) Glob {
	t.Helper()
	g, err := ParseGlob(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGlobMatch(t *testing.T) {
	const home = "/home/user"
	for _, tc := range []struct {
		glob, path string
		want       bool
	}{
		{"out/*.png", "/home/user/out/a.png", true},
		{"out/*.png", "/home/user/out/.png", true},
		{"out/*.png", "/home/user/out/a/b.png", false},
		{"out/*.png", "/home/user/a/out/b.png", false},
		{"out/*.png", "/out/a.png", false},
		{"*", "/home/user", false},
		{"*", "/home/user2", false},
		{"out/**", "/home/user/out", true},
		{"out/**", "/home/user/out/a/b", true},
		{"out/**", "/home/user/outer", false},
		{"**/.env", "/.env", true},
		{"**/.env", "/data/a/.env", true},
		{"**/.env", "/data/.env/x", false},
		{"**/.env", "/data/a.env", false},
		{"**/.git/**", "/w/.git/hooks/x", true},
		{"/data/?/x", "/data/é/x", true},
		{"/data/?/x", "/data/ab/x", false},
		{"/data/**/x/**/y", "/data/x/a/x/b/y", true},
		{"/data/**/x/**/y", "/data/a/b/y", false},
		{"/a*b*c", "/aXbYbZc", true},
		{"/a*b*c", "/aXbYbZ", false},
		{`/\*`, "/*", true},
		{`/\*`, "/a", false},
		{"/a*", "/a*", true},
		{`/a\\b`, `/a\b`, true},
		{"/**", "/", true},
		{"/\xff", "/\xff", true},
		{"/\xff", "/\xfe", false},
		{"**", "relative", false},
	} {
		if got := glob(t, tc.glob).Match(home, tc.path); got != tc.want {
			t.Errorf("%s matches %s: %v", tc.glob, tc.path, got)
		}
	}
	if (Glob{}).Match("/", "/a") || (Glob{}).Covers(Glob{}) {
		t.Error("the zero Glob matches")
	}
}

func TestGlobCovers(t *testing.T) {
	for _, tc := range []struct {
		wide, narrow string
		want         bool
	}{
		{"out/**", "out/a", true},
		{"out/**", "out/**", true},
		{"out/**", "out/*/b", true},
		{"out/**", "out/**/b", true},
		{"out/**", "outer/a", false},
		{"out/*", "out/**", false},
		{"out/*", "out/*.png", true},
		{"out/*.png", "out/*", false},
		{"out/*.png", "out/a*.png", true},
		{"out/?.png", "out/*.png", false},
		{"out/?", "out/?", true},
		{"out/*", `out/\*`, true},
		{`out/\*`, "out/*", false},
		{"out/**", "/out/a", false},
		{"/home/user/**", "a", false},
		{"**", "a/b", true},
		{"a", "a", true},
		{"a", "b", false},
	} {
		if got := glob(t, tc.wide).Covers(glob(t, tc.narrow)); got != tc.want {
			t.Errorf("%s covers %s: %v", tc.wide, tc.narrow, got)
		}
	}
}

// globs draws patterns over a small alphabet, so that they meet.
func globs() *rapid.Generator[string] {
	part := rapid.Custom(func(t *rapid.T) string {
		if rapid.IntRange(0, 3).Draw(t, "deep") == 0 {
			return "**"
		}
		s := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "?", "*", `\*`}), 1, 4).Draw(t, "part"), "")
		return strings.ReplaceAll(strings.ReplaceAll(s, "***", "*"), "**", "*")
	})
	return rapid.Custom(func(t *rapid.T) string {
		s := strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "parts"), "/")
		if rapid.Bool().Draw(t, "absolute") {
			return "/" + s
		}
		return s
	}).Filter(func(s string) bool { _, err := ParseGlob(s); return err == nil })
}

// TestCoversIsSound: whatever the narrow pattern matches, the wide one does.
func TestCoversIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wide, _ := ParseGlob(globs().Draw(t, "wide"))
		narrow, _ := ParseGlob(globs().Draw(t, "narrow"))
		p := "/w/" + strings.Join(rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("ab*")), 1, 4, -1), 0, 4).Draw(t, "path"), "/")
		p = path.Clean(p)
		for _, p := range []string{p, strings.TrimPrefix(p, "/w")} {
			if p != "" && wide.Covers(narrow) && narrow.Match("/w", p) && !wide.Match("/w", p) {
				t.Fatalf("%s covers %s, which alone matches %s", wide, narrow, p)
			}
		}
		if !narrow.Covers(narrow) {
			t.Fatalf("%s does not cover itself", narrow)
		}
	})
}

func FuzzParseGlob(f *testing.F) {
	for _, s := range []string{"out/*.png", "**/.env", `a\*`, "[a]", "/**/**/**/**/a"} {
		f.Add(s, "/home/user/out/a.png")
	}
	f.Fuzz(func(t *testing.T, s, p string) {
		g, err := ParseGlob(s)
		if err != nil {
			return
		}
		g.Match("/home/user", p)
		if !g.Covers(g) {
			t.Errorf("%q does not cover itself", s)
		}
		if strings.HasPrefix(p, "/") && path.Clean(p) == p && p != "/" {
			if e := glob(t, "/**"); !e.Match("/", p) {
				t.Errorf("/** does not match %q", p)
			}
		}
	})
}
