// SPDX-License-Identifier: Apache-2.0

package session

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Where files go is settled before anything runs: no link that code leaves in a
// directory that it may write to leads them elsewhere.
func TestOpenDest(t *testing.T) {
	work, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(work, "link")); err != nil {
		t.Fatal(err)
	}
	r := &run{plan: policy.Plan{Workspace: &policy.PlanMount{PlanPath: policy.PlanPath{Source: work}, Access: sandbox.ReadWrite}}}
	for _, dest := range []string{"link", "link/below"} {
		if root, err := r.openDest(filepath.Join(work, dest)); err == nil {
			root.Close()
			t.Errorf("%s is opened", dest)
		}
	}
	dest := filepath.Join(work, "new", "below")
	root, err := r.openDest(dest)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.Rename(dest, dest+"-moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, dest); err != nil {
		t.Fatal(err)
	}
	if err := root.WriteFile("f", nil, 0o600); err != nil {
		t.Error(err)
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	r.plan.Workspace.Access = sandbox.ReadOnly // nobody inside made that link
	link, err := r.openDest(filepath.Join(work, "link"))
	if err != nil {
		t.Fatal(err)
	}
	link.Close()
}

// Who is killed while files come out leaves nothing that is not one of them.
func TestCollectedFilesHaveNoOtherName(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	res := &sandbox.Result{}
	c := &collector{wish: policy.CollectWish{Dest: dir}, res: res, root: root, prefix: "out/", from: "/home/user",
		named: map[string]bool{}, taken: map[string]string{}}
	offer := func(name string) {
		t.Helper()
		w, err := c.create(guest.File{Path: "out/" + name})
		if err == nil {
			_, err = io.WriteString(w, name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	there := func(want ...string) {
		t.Helper()
		var got []string
		err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				got = append(got, name)
			}
			return err
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	offer("a")
	there()
	offer("sub/b")
	there("a") // it was whole when the next began
	offer("c")
	there("a", "sub/b")
	// The last was cut short.
	err = c.keep(&guest.Collection{Files: []guest.Collected{{Path: "out/a", Size: 1}, {Path: "out/sub/b", Size: 5}}})
	c.discard()
	there("a", "sub/b")
	if err != nil || len(res.Files) != 2 || res.Files[1].Path != "/home/user/out/sub/b" || res.Files[1].SavedAs != filepath.Join(dir, "sub/b") {
		t.Errorf("%v, %v", res.Files, err)
	}
}
