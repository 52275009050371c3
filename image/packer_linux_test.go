// SPDX-License-Identifier: Apache-2.0

package image

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// A file that is written in its place while it is copied, to the same size, ends the packing.
func TestPackChanged(t *testing.T) {
	for name, change := range map[string]func(at string) error{
		"written":   func(at string) error { return os.WriteFile(at, []byte("TEXT"), 0o644) },
		"unchanged": func(string) error { return nil },
	} {
		host := fakeHost(t, "file=text")
		dir, err := os.Open(host)
		must(t, err)
		defer dir.Close()
		p := packing{dir: dir, onCopy: func(name string) { must(t, change(filepath.Join(host, name))) }}
		_, digest, err := p.look(t.Context(), nil)
		must(t, err)
		err = p.write(t.Context(), digest, t.TempDir())
		if name == "unchanged" && err != nil || name == "written" && (!errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "being changed")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is something else by the time it is opened is being changed: the cache is not at fault.
func TestPackTurned(t *testing.T) {
	host := fakeHost(t, "plain=text", "link->plain")
	dir, err := os.Open(host)
	must(t, err)
	defer dir.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "contents"))
	must(t, err)
	defer f.Close()
	p := &packer{ctx: t.Context(), sum: sha256.New(), contents: fstree.NewContents(f), seen: map[[2]uint64]*fstree.Node{}}
	var st unix.Stat_t
	must(t, unix.Fstatat(int(dir.Fd()), "plain", &st, 0))
	for _, name := range []string{"link", "gone"} {
		if _, err := p.file(p.describe(name, &st), int(dir.Fd()), name, &st); err == nil || !strings.Contains(err.Error(), "being changed") {
			t.Errorf("a file that is a %s: %v", name, err)
		}
	}
	if err := sourceError(unix.EIO); strings.Contains(err.Error(), "cache") || !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
}
