// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox/microvm"
	"github.com/caisson-run/caisson/sandbox/process"
)

// The smallest machine ends when its processor does what it is to do. What it says of this
// host's KVM is what a real guest would find: it is told, and not judged.
func TestSmallestMachine(t *testing.T) {
	needQEMU(t)
	d := microvm.New(microvm.Options{Machine: microvm.Micro, Box: process.New(process.Options{}), Kernels: t.TempDir()})
	if err := microvm.TryMachine(d, t.Context(), "tcg", 2*time.Minute); err != nil {
		t.Errorf("on an emulated processor: %v", err)
	}
	onKVM := microvm.New(microvm.Options{Machine: microvm.Micro, Box: process.New(process.Options{KVM: true}), Kernels: t.TempDir()})
	caps, err := onKVM.Probe(t.Context())
	t.Logf("KVM here: %q, %v", caps.Unusable, err)
}

func needQEMU(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("needs qemu-system-x86")
	}
}
