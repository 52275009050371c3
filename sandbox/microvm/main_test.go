// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/image/kernel"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
	"github.com/caisson-run/caisson/sandbox/microvm/firecrackertest"
	"github.com/caisson-run/caisson/sandbox/process"
)

func TestMain(m *testing.M) {
	caisson.Reexec()
	firecrackertest.Main(microvm.HostKHz())
	code := m.Run()
	if kernels.ours {
		os.RemoveAll(kernels.dir)
	}
	os.Exit(code)
}

// kernelVariable names a directory with boot/vmlinuz-* and lib/modules/*, as .ci/guest-kernel
// makes it.
const kernelVariable = "CAISSON_GUEST_KERNEL"

// storeVariable names a store that is made: an owner that a test kills would leave its own.
// It is not for tests as another user, who may not read it.
const storeVariable = "MICROVM_TEST_KERNELS"

// kernels is a store with that kernel, or with this host's own; made once.
var kernels struct {
	once sync.Once
	dir  string
	ours bool
	err  error
}

func kernelStore(t testing.TB) string {
	t.Helper()
	kernels.once.Do(func() {
		if kernels.dir = os.Getenv(storeVariable); kernels.dir != "" {
			return
		}
		if kernels.dir, kernels.err = os.MkdirTemp("", "caisson-kernels-"); kernels.err != nil {
			return
		}
		kernels.ours = true
		os.Setenv(storeVariable, kernels.dir)
		var o kernel.ImportOptions
		if dir := os.Getenv(kernelVariable); dir != "" {
			files, _ := filepath.Glob(dir + "/boot/vmlinuz-*")
			modules, _ := filepath.Glob(dir + "/lib/modules/*")
			if len(files) > 0 && len(modules) > 0 {
				o = kernel.ImportOptions{File: files[0], Modules: modules[0]}
			}
		}
		_, kernels.err = kernel.NewStore(kernels.dir).Import(o)
	})
	if kernels.err != nil {
		t.Skipf("needs a kernel for a guest (%s): %v", kernelVariable, kernels.err)
	}
	return kernels.dir
}

// newDriver emulates: no machine of ours has a KVM that works.
func newDriver(t testing.TB, m microvm.Machine) sandbox.Driver {
	t.Helper()
	needQEMU(t)
	return microvm.New(microvm.Options{Machine: m, Box: process.New(process.Options{}), Kernels: kernelStore(t), Emulated: true})
}
