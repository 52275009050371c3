// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sentry

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

func TestParseChanges(t *testing.T) {
	t.Setenv(changesVariable, "7")
	c, err := parseChanges(`{"targets":["/a","/b"],"covered":["/b"],"at_end":true}`)
	if err != nil || c.socket != 7 || len(c.Targets) != 2 || len(c.Covered) != 1 || !c.AtEnd {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := parseChanges(""); c != nil || err != nil {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := parseChanges("[]"); err == nil {
		t.Errorf("%+v", c)
	}
	t.Setenv(changesVariable, "")
	if c, err := parseChanges("{}"); err == nil {
		t.Errorf("without a socket: %+v", c)
	}
}

// Where no program has come to a system call, nothing was changed.
func TestNoProgram(t *testing.T) {
	c := &changes{Changes: Changes{Targets: []string{"/a"}}}
	for target, want := range map[string]error{"/a": nil, "/b": errNoLayer} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.write(target, w); !errors.Is(err, want) {
			t.Errorf("%s: %v", target, err)
		}
		if _, err := tar.NewReader(r).Next(); err != io.EOF {
			t.Errorf("%s: %v", target, err)
		}
		r.Close()
	}
}

type noOverlay struct{ vfs.FilesystemImpl }

func TestUpperOf(t *testing.T) {
	for _, fs := range []vfs.FilesystemImpl{nil, noOverlay{}, &noOverlay{}} {
		if upper, ok := upperOf(fs); ok {
			t.Errorf("%T has the layer %v", fs, upper)
		}
	}
}
