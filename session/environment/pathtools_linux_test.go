// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOwnedByUs(t *testing.T) {
	own := func(gid uint32) bool { return gid == 1000 }
	for _, tc := range []struct {
		name           string
		uid, gid, mode uint32
		ok             bool
	}{
		{"root's", 0, 0, 0o755, true},
		{"the caller's", 1000, 1000, 0o755, true},
		{"another's", 1001, 1000, 0o755, false},
		{"everybody's", 1000, 1000, 0o777, false},
		{"everybody's, with a sticky bit", 0, 0, 0o1777, false},
		{"the caller's own group's", 1000, 1000, 0o775, true},
		{"another group's", 1000, 50, 0o775, false},
	} {
		if why := notOurs(tc.uid, tc.gid, tc.mode, 1000, own); (why == "") != tc.ok {
			t.Errorf("%s: %q", tc.name, why)
		}
	}
}

// For a level that copies what everybody may look into, a directory that not everybody may is
// left out by its name, and not shown empty.
func TestPathToolsArePublic(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tools")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	undo := &Cleanup{}
	defer undo.Run(t.Context())
	h := &Host{StateDir: t.TempDir(), Undo: undo}
	for name, tt := range map[string]struct {
		mode   os.FileMode
		public bool
		chains int
	}{
		"shown itself": {0o700, false, 1}, "copied": {0o700, true, 0}, "not to be listed": {0o711, true, 0}, "everybody's": {0o755, true, 1},
	} {
		if err := os.Chmod(dir, tt.mode); err != nil {
			t.Fatal(err)
		}
		tools := h.PathTools([]string{dir}, nil, tt.public)
		undo.Close(tools)
		if len(tools.Chains) != tt.chains || len(tools.Left) != 1-tt.chains {
			t.Errorf("%s: %d are shown, left are %+v", name, len(tools.Chains), tools.Left)
		}
		if tt.chains == 0 && (len(tools.Left) == 0 || tools.Left[0].Dir != dir || !strings.Contains(tools.Left[0].Why, "not everybody")) {
			t.Errorf("%s: %+v", name, tools.Left)
		}
	}
}
