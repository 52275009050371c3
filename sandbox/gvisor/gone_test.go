// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// Memory that has a file of the host's open does not fit once that is gone, as after an
// upgrade of the host.
func TestMemoryWithAFileThatIsGone(t *testing.T) {
	tools := t.TempDir()
	program, err := os.ReadFile("/usr/bin/sleep")
	if err == nil {
		err = os.WriteFile(filepath.Join(tools, "nap"), program, 0o755)
	}
	if err == nil {
		err = os.Chmod(tools, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	world := func() *sandbox.Spec {
		spec := fixture(t)
		spec.Snapshots = true
		spec.Root.Binds = append(spec.Root.Binds, sandbox.Mount{Source: open(t, tools), Name: tools, Target: "/opt", Dir: true})
		if err := os.Mkdir(filepath.Join(spec.Root.Dir.Name(), "opt"), 0o755); err != nil {
			t.Fatal(err)
		}
		return spec
	}
	spec := world()
	c, box := living(t, spec, guest.Options{User: spec.User})
	if got := says(t, c, "(/opt/nap 1000 >/dev/null 2>&1 &); until grep -qx nap /proc/[0-9]*/comm; do sleep 0.01; done"); got != "" {
		t.Fatalf("it says %q", got)
	}
	dir := filepath.Join(t.TempDir(), "snapshot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := box.(sandbox.Snapshotter).Snapshot(t.Context(), dir, true); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(tools, "nap")); err != nil {
		t.Fatal(err)
	}
	again, err := gvisor.New(gvisor.Options{}).Restore(t.Context(), world(), dir)
	if err == nil {
		defer again.Destroy(t.Context())
	}
	if !errors.Is(err, sandbox.ErrMisfit) {
		t.Errorf("it goes on: %v", err)
	}
}
