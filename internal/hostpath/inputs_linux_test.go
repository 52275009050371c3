// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

func TestScanInputs(t *testing.T) {
	tests := []struct {
		name  string
		names []string // in a directory in which w is mounted
		named string   // the input's path there
		want  []string
	}{
		{"none in the tree", []string{"w/a", "p"}, "p", nil},
		{"beside a tree whose name begins so", []string{"w/a", "w2/p"}, "w2/p", nil},
		{"at the top", []string{"w/p"}, "w/p", []string{"keep p"}},
		{"deep", []string{"w/a/b/p"}, "w/a/b/p", []string{"pin a/", "pin a/b/", "keep a/b/p"}},
		{"a directory", []string{"w/a/image/index.json"}, "w/a/image", []string{"pin a/", "keep a/image/"}},
		{"odd spelling", []string{"w/a/p", "w/b/"}, "w/.//b/../a/./p", []string{"pin a/", "keep a/p", "pin b/"}},
		{"a link outside that leads in", []string{"w/a/p", "p->w/a/p"}, "p", []string{"pin a/", "keep a/p"}},
		{"a directory outside that leads in", []string{"w/a/b/p", "x/l->../w/a"}, "x/l/b/p", []string{"pin a/", "pin a/b/", "keep a/b/p"}},
		{"another name outside", []string{"w/p", "q=>w/p"}, "w/p", []string{"keep p"}},
		{"not there, outside", []string{"w/a"}, "p", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := planted(t, tt.names...)
			ms, err := Scan(t.Context(), open(t, dir+"/w"), ScanOptions{Inputs: []Input{{Path: dir + "/" + tt.named}}})
			must(t, err)
			if diff := cmp.Diff(tt.want, brief(ms), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestScanInputsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		names []string
		named string
		mount string
		why   string
	}{
		"a link in the tree":                        {[]string{"w/a", "p", "w/l->../p"}, "w/l", "w", "l is a symbolic link"},
		"a link in the tree to a file of it":        {[]string{"w/p", "w/l->p"}, "w/l", "w", "l is a symbolic link"},
		"a directory's link in the tree":            {[]string{"w/a/p", "w/l->a"}, "w/l/p", "w", "l is a symbolic link"},
		"a link outside that leads through one":     {[]string{"w/a/p", "w/l->a", "x->w/l/p"}, "x", "w", "l is a symbolic link"},
		"another name in the tree":                  {[]string{"p", "w/a/q=>p"}, "p", "w", "a/q is another name of it"},
		"another name in the tree of a file of it":  {[]string{"w/p", "w/a/q=>w/p"}, "w/p", "w", "a/q is another name of it"},
		"the file itself is mounted":                {[]string{"w/p"}, "w/p", "w/p", "it is what would be mounted"},
		"another name of the file itself":           {[]string{"w/p", "q=>w/p"}, "w/p", "q", "it is what would be mounted"},
		"gone":                                      {[]string{"w/a/b"}, "w/a/p", "w", "it is gone"},
		"gone with its directory":                   {[]string{"w/a"}, "w/b/p", "w", "it is gone"},
		"a link outside that leads to nothing here": {[]string{"w/a", "p->w/b"}, "p", "w", "it is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := planted(t, tt.names...)
			_, err := Scan(t.Context(), open(t, filepath.Join(dir, tt.mount)), ScanOptions{Inputs: []Input{{Path: dir + "/" + tt.named}}})
			refusedFor(t, err, tt.why)
		})
	}
}

// What was read counts where its name is another file's by now, or no file's; and what
// the name leads to counts, too, for that is what is read next.
func TestScanInputsMoved(t *testing.T) {
	for name, tt := range map[string]struct {
		names, then []string // what moves: "from>to"; "from>" is removed
		want        []string
		why         string
	}{
		"as it was":              {[]string{"w/p"}, nil, []string{"keep p"}, ""},
		"replaced":               {[]string{"w/p", "new"}, []string{"w/p>", "new>w/p"}, []string{"keep p"}, ""},
		"moved in the tree":      {[]string{"w/p", "w/a/b"}, []string{"w/p>w/a/q"}, nil, "it is gone"},
		"moved, and one made":    {[]string{"w/p", "w/a/b", "new"}, []string{"w/p>w/a/q", "new>w/p"}, []string{"pin a/", "keep a/q", "keep p"}, ""},
		"removed, another name":  {[]string{"w/p", "w/q=>w/p", "new"}, []string{"w/p>", "new>w/p"}, nil, "q is another name of it"},
		"removed, a name beside": {[]string{"w/p", "q=>w/p", "new"}, []string{"w/p>", "new>w/p"}, []string{"keep p"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := planted(t, tt.names...)
			f, err := os.Open(dir + "/w/p")
			must(t, err)
			defer f.Close()
			for _, m := range tt.then {
				from, to, _ := strings.Cut(m, ">")
				if to == "" {
					must(t, os.Remove(filepath.Join(dir, from)))
				} else {
					must(t, os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)))
				}
			}
			ms, err := Scan(t.Context(), open(t, dir+"/w"), ScanOptions{Inputs: []Input{{Path: dir + "/w/p", File: f}}})
			if tt.why != "" {
				refusedFor(t, err, tt.why)
				return
			}
			must(t, err)
			if diff := cmp.Diff(tt.want, brief(ms), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What caisson reads by itself keeps no tree from being mounted for what lies outside of it.
func TestScanOwnInputs(t *testing.T) {
	for name, tt := range map[string]struct {
		names []string
		named string
		want  []string
	}{
		"its program":              {[]string{"w/bin/caisson"}, "w/bin/caisson", []string{"pin bin/", "keep bin/caisson"}},
		"other names in the tree":  {[]string{"p", "w/a/q=>p", "w/r=>p"}, "p", []string{"pin a/", "keep a/q", "keep r"}},
		"out of reach, outside":    {[]string{"w/a", "x->x"}, "x/config.json", nil},
		"among what git has there": {[]string{"p", "w/.git/objects/q=>p"}, "p", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := planted(t, tt.names...)
			ms, err := Scan(t.Context(), open(t, dir+"/w"), ScanOptions{Inputs: []Input{{Path: dir + "/" + tt.named, Own: true}}})
			must(t, err)
			if diff := cmp.Diff(tt.want, brief(ms), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
	dir := planted(t, "w/a", "w/x->x")
	if _, err := Scan(t.Context(), open(t, dir+"/w"), ScanOptions{Inputs: []Input{{Path: dir + "/w/x", Own: true}}}); err == nil {
		t.Error("a link in the tree: nothing said so")
	}
}

// What was read by a descriptor has no path, and a place.
func TestScanInputWithoutPath(t *testing.T) {
	dir := planted(t, "w/a/p")
	f, err := os.Open(dir + "/w/a/p")
	must(t, err)
	defer f.Close()
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	ms, err := Scan(t.Context(), open(t, dir+"/w"), ScanOptions{Inputs: []Input{{File: f}, {File: r}}})
	must(t, err)
	if diff := cmp.Diff([]string{"pin a/", "keep a/p"}, brief(ms)); diff != "" {
		t.Error(diff)
	}
}

// A hidden input needs no second mount, but its directory stays where it is.
func TestScanInputsAndTheRest(t *testing.T) {
	dir := planted(t, append(repo("w/.git"), "w/conf/.env", "w/.vscode/p", "w/.git/p")...)
	ms, err := Scan(t.Context(), open(t, dir+"/w"), ScanOptions{Deny: []string{".env"}, Protect: true,
		Inputs: []Input{{Path: dir + "/w/conf/.env"}, {Path: dir + "/w/.vscode/p"}}})
	must(t, err)
	got := strings.Join(brief(ms), ", ")
	for _, want := range []string{"pin conf/, hide conf/.env", "keep .vscode/"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s, want %s in it", got, want)
		}
	}
	if strings.Contains(got, ".vscode/p") {
		t.Errorf("%s is mounted in what is kept", got)
	}
}

// follow goes where the kernel goes.
func TestInputsFollow(t *testing.T) {
	dir := planted(t, "a/b/p", "l->a/b", "a/m->../l", "loop->loop", "up->..")
	src := open(t, planted(t, "other/"))
	for _, name := range []string{"a/b/p", "l/p", "l/../b/p", "a/m/p", "a/m/../m/./p", "up/" + filepath.Base(dir) + "/l/p", "l", "a/b/p/.", "loop/x", "none"} {
		at := dir + "/" + name
		var want unix.Stat_t
		werr := unix.Stat(at, &want)
		mounts, err := readMounts()
		must(t, err)
		o, err := lookup(int(src.File.Fd()), mounts)
		must(t, err)
		i := &inputs{scan: &scan{ctx: t.Context(), root: src, o: ScanOptions{maxEntries: maxEntries}}, tree: o, real: src.Real, mounts: mounts, linked: map[id]string{}, kept: map[string]bool{}}
		got, err := i.follow(at, at, false)
		switch {
		case werr == nil && (err != nil || got != id{want.Dev, want.Ino}):
			t.Errorf("%s: %v, %v, want %v", name, got, err, want.Ino)
		case errors.Is(werr, unix.ELOOP) != (err != nil):
			t.Errorf("%s: %v, the kernel says %v", name, err, werr)
		case werr != nil && got != id{} && name != "a/b/p/.":
			t.Errorf("%s: %v, the kernel says %v", name, got, werr)
		}
	}
}

// planted is a new directory with names in it, as of workspace.
func planted(t *testing.T, names ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	grow(t, dir, names...)
	return dir
}

func refusedFor(t *testing.T, err error, why string) {
	t.Helper()
	if !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), why) || sandbox.Hint(err) == "" {
		t.Errorf("%v, want a refusal for %q with a hint", err, why)
	}
}
