// SPDX-License-Identifier: Apache-2.0

//go:build linux

package session

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// A file that the host replaces is one that the sandbox may write to from then
// on: git config does it, and so do editors.
func TestKeptNameReplaced(t *testing.T) {
	replace := func(t *testing.T, dir, name string) {
		if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		prog func(t *testing.T, dir string)
		kill bool // the program runs until it is ended
		lost string
	}{
		{"ended", func(t *testing.T, dir string) { replace(t, dir, ".git/config") }, true, ".git/config"},
		{"at the end", func(t *testing.T, dir string) { replace(t, dir, ".git/config") }, false, ".git/config"},
		{"a placeholder", func(t *testing.T, dir string) { replace(t, dir, ".envrc") }, true, ".envrc"},
		{"a directory", func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, ".git"), filepath.Join(dir, "old")); err != nil {
				t.Fatal(err)
			}
		}, false, ".git"},
		{"something else", func(t *testing.T, dir string) { replace(t, dir, "main.c") }, false, ""},
		{"a directory above that is moved", func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, "sub"), filepath.Join(dir, "moved")); err != nil {
				t.Fatal(err)
			}
		}, false, "sub"}, // what code makes in its place is not kept
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, repo := range []string{".git", "sub/.git"} {
				for _, d := range []string{"hooks", "objects", "refs"} {
					if err := os.MkdirAll(filepath.Join(dir, repo, d), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				for _, f := range []string{"HEAD", "config"} {
					if err := os.WriteFile(filepath.Join(dir, repo, f), []byte("ref: refs/heads/main\n"), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			d := &stub{prog: func(ctx context.Context, s *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
				tc.prog(t, dir)
				if tc.kill {
					return untilKilled(ctx, s, x)
				}
				return exited(0), nil
			}}
			b := newBench(t, d, nil)
			res, err := b.Do(t.Context(), call(t, func(c *Call) {
				c.Workspace, c.Git = &policy.MountWish{Source: dir, Access: sandbox.ReadWrite}, policy.GitWrite
			}), IO{})
			if err != nil {
				t.Fatal(err)
			}
			told := res.Status == sandbox.StatusError && strings.Contains(res.Reason, tc.lost+" was replaced") && res.Hint != ""
			if tc.lost != "" && !told || tc.lost == "" && (res.Status != sandbox.StatusSuccess || res.Reason != "") {
				t.Errorf("%s %q, hint %q", res.Status, res.Reason, res.Hint)
			}
			b.clean(t)
		})
	}
}
