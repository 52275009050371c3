// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// What a program leaves in a read-write mount that the host may run is in the result
// and in the record, whatever came of the program; what is read-only or
// copy-on-write is not searched.
func TestFound(t *testing.T) {
	for _, tc := range []struct {
		name   string
		access sandbox.Access
		code   int
		want   int
	}{
		{"a program that ended well", sandbox.ReadWrite, 0, 1},
		{"one that failed", sandbox.ReadWrite, 3, 1},
		{"copy-on-write", sandbox.CopyOnWrite, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			d := &stub{prog: func(context.Context, *sandbox.Spec, *sandbox.Exec) (*sandbox.Result, error) {
				if err := os.MkdirAll(filepath.Join(dir, "a/.roo"), 0o755); err != nil {
					t.Error(err)
				}
				return exited(tc.code), nil
			}}
			var notices []string
			b := newBench(t, d, nil)
			res, err := b.Do(t.Context(), call(t, func(c *Call) {
				c.Workspace = &policy.MountWish{Source: dir, Access: tc.access}
				c.OnNotice = func(s string) { notices = append(notices, s) }
			}), IO{})
			if err != nil {
				t.Fatal(err)
			}
			if len(res.Findings) != tc.want || len(notices) > 0 {
				t.Fatalf("%d findings, want %d: %v %q", len(res.Findings), tc.want, res.Findings, notices)
			}
			for _, f := range res.Findings {
				if f.Kind != sandbox.FindingHostFile || f.Action != sandbox.ActionInspect || f.Text != filepath.Join(dir, "a/.roo") || f.Problem == "" || f.Rule == "" || f.Hint == "" {
					t.Errorf("%+v", f)
				}
			}
			b.clean(t)
		})
	}
}
