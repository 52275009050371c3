// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// The workspace's own repository is kept to be put in place inside again, and to make a
// branch of. It is among no entries.
func TestOwnRepositoryIsKept(t *testing.T) {
	host := tree{}
	host.put(".git/HEAD", object{File, "ref: refs/heads/main\n", false})
	host.put(".git/refs/heads/main", object{File, "old\n", false})
	host.put(".git/refs/heads/gone", object{File, "gone\n", false})
	host.put("sub/.git/HEAD", object{File, "old", false})
	ws := newWorkspace(t, host)
	layer := newTar().file(".git/refs/heads/main", "new\n", 0o644).file(".git/objects/ab/c", "object", 0o444).whiteout(".git/refs/heads/gone").
		file(".git/HEAD", "ref: refs/heads/main\n", 0o644).file(".GIT/HEAD", "x", 0o644).file("sub/.git/HEAD", "x", 0o644).file("a", "a", 0o644)
	set := ws.keep(layer.bytes())
	var git []string
	for _, e := range set.Git {
		if e.Type != Dir {
			git = append(git, string(e.Op)+" "+e.Path)
		}
	}
	if got, want := strings.Join(git, ", "), "add .git/objects/ab/c, remove .git/refs/heads/gone, change .git/refs/heads/main"; got != want {
		t.Errorf("kept is %s, and not %s", got, want)
	}
	if got := strings.Join(paths(set), " "); got != "A file a" {
		t.Errorf("the entries are %s", got)
	}
	read, err := ws.store.Get("", set.ID)
	if err != nil || len(read.Git) != len(set.Git) || len(read.Entries) != 1 {
		t.Fatalf("it is read as %+v, %v", read, err)
	}
	files, err := ws.store.Files(set.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	var b bytes.Buffer
	if err := files.WriteTar(&b, func(at string) bool { return at == "a" }); err != nil {
		t.Fatal(err)
	}
	var names []string
	for tr := tar.NewReader(&b); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if hdr.Typeflag != tar.TypeDir {
			names = append(names, string(hdr.Typeflag)+hdr.Name)
		}
	}
	if got, want := strings.Join(names, " "), "0.git/objects/ab/c 3.git/refs/heads/gone 0.git/refs/heads/main"; got != want {
		t.Errorf("the stream has %s, and not %s", got, want)
	}
	src := Source{Root: ws.rootDir(), Name: "/w", Target: "/w"}
	if set, err := ws.store.Keep(t.Context(), src, bytes.NewReader(newTar().file(".git/index", "x", 0o644).bytes())); set != nil || err != nil {
		t.Errorf("a new index alone is a set: %+v, %v", set, err)
	}
	if set := ws.keep(newTar().file(".git/refs/heads/new", "x", 0o644).bytes()); set == nil || len(set.Entries) != 0 {
		t.Errorf("a new branch alone is %+v", set)
	}
}
