// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// Memory goes on where everything is that it may rely on, and is refused elsewhere.
func TestMemoryFits(t *testing.T) {
	was := maker{"v1", features([]byte("processor\t: 0\nflags\t\t: sse avx2 fpu\nprocessor\t: 1\nflags\t\t: none\n"))}
	for name, c := range map[string]struct {
		now  maker
		fits bool
	}{
		"the same":        {was, true},
		"more":            {maker{"v1", []string{"avx2", "avx512f", "fpu", "sse"}}, true},
		"less":            {maker{"v1", []string{"fpu", "sse"}}, false},
		"another version": {maker{"v2", was.CPU}, false},
		"nothing":         {maker{}, false},
	} {
		if why := was.misfit(c.now); (why == "") != c.fits {
			t.Errorf("%s: %q", name, why)
		}
	}
	if why := (maker{}).misfit(was); why != "" {
		t.Errorf("one of before it was written down: %q", why)
	}
	if len(was.CPU) != 3 {
		t.Errorf("%q", was.CPU)
	}
}

// Memory that was kept on one image does not go on on another; files do.
func TestMemoryFitsItsImage(t *testing.T) {
	for name, c := range map[string]struct {
		was, now string
		files    bool
		fits     bool
	}{
		"the same":                      {"sha256:1", "sha256:1", false, true},
		"another":                       {"sha256:1", "sha256:2", false, false},
		"none now":                      {"sha256:1", "", false, false},
		"files on another":              {"sha256:1", "sha256:2", true, true},
		"none of either":                {"", "", false, true},
		"of before it was written down": {"", "sha256:2", false, true},
	} {
		was := self{Mark: "m", Files: c.files, Image: c.was, maker: here()}
		if euid == 0 {
			was.Base = 1
		}
		b, err := json.Marshal(was)
		dir := t.TempDir()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, selfFile), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		spec := &sandbox.Spec{}
		if c.now != "" {
			spec.Root.Image = &sandbox.Image{Digest: c.now}
		}
		if _, err := readSelf(dir, spec); (err == nil) != c.fits || err != nil && !errors.Is(err, sandbox.ErrMisfit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
