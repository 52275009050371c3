// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// TestScratchIsThere: a directory that was removed is said to be missing, and not left
// to gVisor, which panics over it.
func TestScratchIsThere(t *testing.T) {
	dir := t.TempDir()
	for name, missing := range map[string]bool{dir: false, filepath.Join(dir, "gone"): true} {
		w := &instance{order: &protocol.Order{}, spec: &specs.Spec{
			Annotations: map[string]string{scratchAnnotation + "0.source": dir, scratchAnnotation + "1.source": name},
			Mounts:      []specs.Mount{{Source: dir}, {Source: name}},
		}}
		if err := w.findScratch(); errors.Is(err, os.ErrNotExist) != missing || (err != nil) != missing {
			t.Errorf("%s: %v", name, err)
		}
	}
}
