// SPDX-License-Identifier: Apache-2.0

//go:build linux

package boot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// A file of names that is too large is told from one that cannot be read, and read only where
// something of it stays.
func TestNameText(t *testing.T) {
	dir := t.TempDir()
	large, small := filepath.Join(dir, "large"), filepath.Join(dir, "small")
	if err := errors.Join(os.WriteFile(small, []byte("10.0.0.1 a\n"), 0o600), os.WriteFile(large, []byte(strings.Repeat("x", maxHosts+1)), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		file sandbox.NameFile
		root string
		want string
		err  error
	}{
		"as the root has it":    {sandbox.NameFile{Target: "/etc/hostname"}, small, "10.0.0.1 a\n", nil},
		"another line":          {sandbox.NameFile{Target: sandbox.HostsFile, Text: "127.0.1.1 b\n"}, small, "10.0.0.1 a\n127.0.1.1 b\n", nil},
		"another text":          {sandbox.NameFile{Target: "/etc/hostname", Text: "b\n"}, large, "b\n", nil},
		"large, and no names":   {sandbox.NameFile{Target: sandbox.HostsFile}, large, "", errTooLarge},
		"large, and a line":     {sandbox.NameFile{Target: sandbox.HostsFile, Text: "127.0.1.1 b\n"}, large, "", errTooLarge},
		"one that is not there": {sandbox.NameFile{Target: sandbox.HostsFile}, filepath.Join(dir, "none"), "", os.ErrNotExist},
	} {
		if got, err := nameText(tt.file, tt.root); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %.20q, %v", name, got, err)
		}
	}
}
