// SPDX-License-Identifier: Apache-2.0

package mounts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/sandbox"
)

// A root's hosts file that is too large stays as it is, and its other names are the sandbox's.
func TestNamesOverLargeHosts(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"hostname": "root\n", "hosts": strings.Repeat("x", 1<<20+1)} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	with, opened, err := mounts.WithNames(&sandbox.Spec{Hostname: "x", MachineID: "m", StateDir: t.TempDir(), Root: sandbox.Root{Dir: dir}})
	for _, f := range opened {
		f.Close()
	}
	if err != nil || len(with.Mounts) != 1 || with.Mounts[0].Target != "/etc/hostname" {
		t.Errorf("%+v, %v", with, err)
	}
}
