// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestShown(t *testing.T) {
	for s, want := range map[string]string{
		"plain é 漢": "plain é 漢", "a\x1b[2Jb": `a\x1b[2Jb`, "a\u202eb": `a\u{202e}b`, "a\u200bb": `a\u{200b}b`, "\xff": `\xff`, "a\nb\tc\r": `a\x0ab\x09c\x0d`,
		"\u2028": `\u{2028}`, "\u009b": `\u{009b}`, "\x7f": `\x7f`, "\ufe0f": `\u{fe0f}`, "\U000e0041": `\u{e0041}`, "\ufffd": "\ufffd", "\u115f": `\u{115f}`,
		"a b": "a b", "a\u00a0b": `a\u{00a0}b`, "\u2003": `\u{2003}`, "\u3000": `\u{3000}`, "\u1680": `\u{1680}`, "\u2800": `\u{2800}`, "\ufffc": `\u{fffc}`,
		"\u0301a/\u0301b": `\u{0301}a/\u{0301}b`, "e\u0301": "e\u0301", `\x1b`: `\\x1b`, "\\\x1b": `\\\x1b`,
	} {
		if got := Shown(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

func TestStatAndPatch(t *testing.T) {
	host := tree{"f": {File, "one\ntwo\nthree\n", false}, "gone": {File, "x\n", false}, "run": {File, "x", true}, "bin": {File, "a\x00b", false}}
	ws := newWorkspace(t, host)
	set := ws.keep(newTar().file("f", "one\nt\u202ewo\x1b]0;x\a\tz\nthree", 0o644).whiteout("gone").file("run", "x", 0o644).file("bin", "a\x00c", 0o644).
		file("new\u202egpj.sh", "#!\n", 0o755).link("l", "f\t").file(".git/index", "x", 0o644).file("big", strings.Repeat("x", maxPatch+1), 0o644).dir("d").bytes())
	var stat, patch strings.Builder
	if err := WriteStat(&stat, set); err != nil {
		t.Fatal(err)
	}
	want := `A big (1048577 bytes)
M bin (3 bytes)
A d/
M f (24 bytes)
D gone
A l -> f\x09
  held back: it leads to what is held back: its name has characters that are not seen
A new\u{202e}gpj.sh (3 bytes, can be run)
  held back: its name has characters that are not seen
  held back: it can be run: its exec bit is new
X run (can no longer be run)
! .git: 1 change, never applied: git on the host runs what is in a repository
7 files changed, 2 held back
`
	if diff := cmp.Diff(want, stat.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	ws.edit("gone", "other\n", false)
	if err := ws.store.WritePatch(&patch, set, ""); err != nil {
		t.Fatal(err)
	}
	want = `A big (1048577 bytes)
  too large to show whole: it is cut after 64 KiB
--- host/big
+++ set/big
@@ -0,0 +1 @@
+` + strings.Repeat("x", headSize) + `
\ No newline at end of file
M bin (3 bytes)
  binary
A d/
M f (24 bytes)
--- host/f
+++ set/f
@@ -1,3 +1,3 @@
 one
-two
-three
+t\u{202e}wo\x1b]0;x\x07` + "\t" + `z
+three
\ No newline at end of file
D gone
  the host's file has changed since the run
--- host/gone
+++ set/gone
@@ -1 +0,0 @@
-other
A l -> f\x09
  held back: it leads to what is held back: its name has characters that are not seen
A new\u{202e}gpj.sh (3 bytes, can be run)
  held back: its name has characters that are not seen
  held back: it can be run: its exec bit is new
--- host/new\u{202e}gpj.sh
+++ set/new\u{202e}gpj.sh
@@ -0,0 +1 @@
+#!
X run (can no longer be run)
`
	if diff := cmp.Diff(want, patch.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	patch.Reset()
	if err := ws.store.WritePatch(&patch, set, "gone"); err != nil || !strings.HasPrefix(patch.String(), "D gone\n") || strings.Contains(patch.String(), "X run") {
		t.Errorf("%s, %v", patch.String(), err)
	}
	if err := ws.store.WritePatch(&patch, set, "none"); err == nil {
		t.Error("a path that is not in it is shown")
	}
}

// What is applied is counted as what is changed: a directory is no file.
func TestLineCountsFiles(t *testing.T) {
	for want, layer := range map[string]func(*tarWriter) *tarWriter{
		"2 files changed, 2 applied":           func(l *tarWriter) *tarWriter { return l.dir("d").file("d/f", "x\n", 0o644).file("d/g", "x\n", 0o644) },
		"0 files changed, directories applied": func(l *tarWriter) *tarWriter { return l.dir("d") },
	} {
		ws := newWorkspace(t, tree{})
		set := ws.keep(layer(newTar()).bytes())
		if _, err := ws.apply(set, ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
		list, err := ws.store.List("")
		if err != nil || len(list) != 1 || list[0].Line() != want {
			t.Errorf("%v, %+v, want %q", err, list, want)
		}
	}
}

// A set that an older caisson applied does not say how many files that were.
func TestLineOfOlderSets(t *testing.T) {
	s := Summary{Counts: Counts{Files: 2}}
	if err := json.Unmarshal([]byte(`{"applied": 3}`), &s.State); err != nil {
		t.Fatal(err)
	}
	if got, want := s.Line(), "2 files changed, applied"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Only a NUL makes a file binary. What is replaced by another type is said.
func TestPatchShows(t *testing.T) {
	ws := newWorkspace(t, tree{"latin": {File, "caf\xe9\n", false}, "link": {kind: Link, text: "latin"}, "dir": {kind: Dir}, "file": {File, "x\n", false}, "mode": {kind: Dir}, "to": {File, "x\n", false}})
	layer := newTar().file("latin", "caf\xe8 \\x \u00a0\n", 0o644).file("link", "x\n", 0o755).file("dir", "x\n", 0o644).dir("file").link("to", "latin")
	layer.dirs("mode", 0o700)
	set := ws.keep(layer.bytes())
	var patch strings.Builder
	if err := ws.store.WritePatch(&patch, set, ""); err != nil {
		t.Fatal(err)
	}
	want := `M dir (2 bytes, was a directory)
--- host/dir
+++ set/dir
@@ -0,0 +1 @@
+x
M file/ (was a file)
M latin (11 bytes)
--- host/latin
+++ set/latin
@@ -1 +1 @@
-caf\xe9
+caf\xe8 \x ` + "\u00a0" + `
M link (2 bytes, can be run, was a link)
  held back: it can be run: its exec bit is new
--- host/link
+++ set/link
@@ -0,0 +1 @@
+x
X mode/ (mode 0700, was 0755)
  held back: its mode changes from 0755 to 0700
M to -> latin (was a file)
`
	if diff := cmp.Diff(want, patch.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// No text of a set reaches a terminal as it is.
func FuzzShown(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := Shown(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, unseen) {
			t.Errorf("%q is shown as %q", s, got)
		}
	})
}
