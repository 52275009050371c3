// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"path/filepath"

	"github.com/caisson-run/caisson/image/kernel"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/docker"
	"github.com/caisson-run/caisson/sandbox/gvisor"
	"github.com/caisson-run/caisson/sandbox/microvm"
	"github.com/caisson-run/caisson/sandbox/process"
)

// Drivers are the levels of isolation that a program with this package has, by
// name. Making them does nothing to the host.
func Drivers() map[string]sandbox.Driver { return DriversIn("") }

// DriversIn are Drivers whose state directory is state, as in Options.State. Virtual
// machines boot the kernels that lie there.
func DriversIn(state string) map[string]sandbox.Driver {
	kernels := filepath.Join(store.Place(store.Options{Dir: state}), kernel.Dir)
	box := process.New(process.Options{KVM: true, TAP: true})
	machine := func(m microvm.Machine) sandbox.Driver {
		return microvm.New(microvm.Options{Machine: m, Box: box, Emulation: process.New(process.Options{}), Kernels: kernels})
	}
	return map[string]sandbox.Driver{
		gvisor.Name:           gvisor.New(gvisor.Options{}),
		docker.Name:           docker.New(docker.Options{}),
		process.Name:          process.New(process.Options{}),
		string(microvm.Micro): machine(microvm.Micro),
		string(microvm.Full):  machine(microvm.Full),
	}
}
