// SPDX-License-Identifier: Apache-2.0

package session

import (
	"os"
	"path/filepath"
	"testing"

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
