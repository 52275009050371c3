// SPDX-License-Identifier: Apache-2.0

//go:build linux

package session

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
)

// What is mounted in the workspace is not the set's: nothing is written or removed there.
func TestBeginningFits(t *testing.T) {
	const ws = "/home/user/w"
	set := func(e ...changes.Entry) *changes.Contents { return &changes.Contents{Set: &changes.Set{Entries: e}} }
	for _, tt := range []struct {
		name    string
		entries []changes.Entry
		why     string
		skipped string
	}{
		{"beside", []changes.Entry{{Path: "a/outer", Op: changes.Remove, Type: changes.Dir}}, "", ""},
		{"the mount", []changes.Entry{{Path: "a/out", Op: changes.Remove, Type: changes.Dir}}, "", "a/out"},
		{"in the mount", []changes.Entry{{Path: "a/out/x", Op: changes.Add, Type: changes.File}}, "", "a/out/x"},
		{"a mode above", []changes.Entry{{Path: "a", Op: changes.Mode, Type: changes.Dir}}, "", ""},
		{"removed above", []changes.Entry{{Path: "a", Op: changes.Remove, Type: changes.Dir}}, "something is mounted in that", ""},
		{"replaced above", []changes.Entry{{Path: "a", Op: changes.Change, Type: changes.Link}}, "something is mounted in that", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			b := &beginning{files: set(tt.entries...), target: ws}
			err = b.fit(&sandbox.Spec{Mounts: []sandbox.Mount{{Source: dir, Target: ws + "/a/out"}}})
			if (err != nil) != (tt.why != "") || err != nil && !strings.Contains(err.Error(), tt.why) {
				t.Errorf("%v", err)
			}
			for _, e := range tt.entries {
				if err == nil && b.other(e.Path) != (e.Path == tt.skipped) {
					t.Errorf("%s left out: %v", e.Path, b.other(e.Path))
				}
			}
			if err := b.fit(&sandbox.Spec{Mounts: []sandbox.Mount{{Source: dir, Target: ws}}}); err == nil || !strings.Contains(err.Error(), "another directory") {
				t.Errorf("another workspace: %v", err)
			}
		})
	}
}
