// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// What a module of the kernel brings later is hidden from the next sandbox, and what it
// takes away is not looked for.
func TestProcIsLookedAtAnew(t *testing.T) {
	proc := t.TempDir()
	look := func(want ...sandbox.Mask) {
		t.Helper()
		if got := process.ProcHidden(proc); !slices.Equal(got, want) {
			t.Errorf("hidden is %v, want %v", got, want)
		}
	}
	sound, config := filepath.Join(proc, "asound"), filepath.Join(proc, "config.gz")
	look()
	if err := errors.Join(os.Mkdir(sound, 0o755), os.WriteFile(config, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	look(sandbox.Mask{Target: "/proc/asound", Dir: true}, sandbox.Mask{Target: "/proc/config.gz"})
	if err := errors.Join(os.Remove(sound), os.Chmod(config, 0o400)); err != nil {
		t.Fatal(err)
	}
	look()
}
