// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"runtime"

	"github.com/caisson-run/caisson/sandbox"
)

// As root on an engine of this machine caisson puts a network device into the
// container's network namespace, as it does with mounts, while nothing runs
// there but the agent. The engine knows nothing of it: it made no network. An
// ordinary user has no rights over that namespace.

// network says how the level takes a wire; and where it does not, why.
func (f *facts) network(euid int, ociRuntime string) (sandbox.Wire, sandbox.Clause) {
	no := func(why, remedy string) (sandbox.Wire, sandbox.Clause) {
		return "", sandbox.Clause{Enforcement: sandbox.Off, Detail: why, Remedy: remedy}
	}
	const elsewhere = "run on a level that makes its own: --isolation gvisor"
	switch {
	case !f.at.local() || runtime.GOOS != "linux":
		return no("the engine is not on this machine, and its containers' networks are out of reach", elsewhere)
	case euid != 0:
		return no("only root may put a device into a container's network", elsewhere)
	case ociRuntime != "":
		return no("a container of the runtime "+ociRuntime+" has a network of its own making", elsewhere)
	}
	if why, remedy := deviceUsable(); why != "" {
		return no(why, remedy)
	}
	return sandbox.WireDevice, sandbox.Clause{}
}

// checkNetwork refuses a network where there can be none.
func (f *facts) checkNetwork(s *sandbox.Spec, euid int, ociRuntime string) error {
	if s.Network == nil {
		return nil
	}
	if wire, why := f.network(euid, ociRuntime); wire == "" {
		return &sandbox.Error{Op: "network", Kind: sandbox.ErrUnsupported, Problem: "docker has no network with an allow-list here: " + why.Detail, Hint: why.Remedy}
	}
	return nil
}
