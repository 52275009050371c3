// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// maxMasks bounds how many paths one sandbox may hide: each is a mount.
const maxMasks = 256

// planMounts adds what of the host is shown: the root's own parts, what the
// operator named, and something empty over what is to be hidden. The
// last two are mounted by caisson where it inserts, else by the engine.
func (p *plan) planMounts(f *facts) error {
	s := p.spec
	for _, m := range s.Root.Binds {
		if m.Access != sandbox.ReadOnly {
			return sandbox.Errorf(sandbox.ErrInvalid, "mount "+m.Name, "a part of the root must be read-only")
		}
		p.bind(m)
	}
	guard, err := newSocketGuard(f.at)
	if err != nil {
		return err
	}
	for _, m := range slices.Concat(s.Root.Binds, s.Mounts) {
		if m.Source == nil {
			return sandbox.Errorf(sandbox.ErrInvalid, "mount "+m.Name, "it was not opened")
		}
		if err := guard.refuse(m); err != nil {
			return err
		}
	}
	masks, err := p.masks()
	if err != nil {
		return err
	}
	if mounts := slices.Concat(s.Mounts, masks); p.inserts {
		err = p.planInserts(mounts)
	} else {
		err = p.planNamed(mounts, f)
	}
	if err != nil {
		return err
	}
	if len(p.binds) > 0 && !f.at.local() {
		return &sandbox.Error{Op: "mount " + p.binds[0].Name, Kind: sandbox.ErrUnsupported,
			Problem: "the engine at " + f.at.String() + " does not see this host's files",
			Hint:    "use an image as the root (--image) and no mounts, or an engine on a socket of this host"}
	}
	for i, m := range p.binds {
		if err := p.placed(i); err != nil {
			return err
		}
		b, err := newBind(m, f)
		if err != nil {
			return err
		}
		p.request.HostConfig.Mounts = append(p.request.HostConfig.Mounts, b)
	}
	if !p.inserts && f.namespaces() && !f.podman && p.here {
		p.request.HostConfig.Mounts = append(p.request.HostConfig.Mounts, terminals())
	}
	return nil
}

// planNamed has the engine mount what the operator named.
func (p *plan) planNamed(mounts []sandbox.Mount, f *facts) error {
	for _, m := range mounts {
		switch {
		case m.Access == sandbox.CopyOnWrite:
			return &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrUnsupported, Problem: "docker has no copy-on-write mounts for an ordinary user, nor on an engine of its own user namespace",
				Hint: "mount it :ro, or run on a level that has them: --isolation gvisor"}
		case m.Access == sandbox.ReadWrite && !f.namespaces():
			return &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrUnsupported,
				Problem: "what code writes would belong to a uid of the container on this engine", Hint: "mount it :ro and collect what was written"}
		}
		p.bind(m)
	}
	return nil
}

// bind adds a bind mount; a later one takes an earlier one's place.
func (p *plan) bind(m sandbox.Mount) {
	p.binds = slices.DeleteFunc(p.binds, func(o sandbox.Mount) bool { return o.Target == m.Target })
	p.binds = append(p.binds, m)
}

// masks are mounts of something empty over all that is to be hidden.
func (p *plan) masks() ([]sandbox.Mount, error) {
	if n := len(p.spec.Masks); n > maxMasks {
		return nil, &sandbox.Error{
			Op: "hide paths", Kind: sandbox.ErrUnsupported,
			Problem: fmt.Sprintf("%d paths are to be hidden, docker takes %d", n, maxMasks),
			Hint:    "mount less, or deny whole directories instead of the files in them",
		}
	}
	var masks []sandbox.Mount
	for _, m := range p.spec.Masks {
		empty, err := p.empty(m.Dir)
		if err != nil {
			return nil, err
		}
		masks = append(masks, sandbox.Mount{Source: empty, Name: "nothing over " + m.Target, Target: m.Target, Dir: m.Dir})
	}
	return masks, nil
}

// placed sees to it that the mountpoint of a bind is there already where it
// lies in another host object: the runtime would make it, on the host.
func (p *plan) placed(i int) error {
	m := p.binds[i]
	var owner *sandbox.Mount
	for j := range p.binds {
		o := &p.binds[j]
		if j != i && sandbox.Within(m.Target, o.Target) && (owner == nil || len(o.Target) > len(owner.Target)) {
			owner = o
		}
	}
	if owner == nil {
		return nil // the container's own root, in which the runtime makes it
	}
	for target := range p.request.HostConfig.Tmpfs {
		if sandbox.Within(m.Target, target) && sandbox.Within(target, owner.Target) && target != owner.Target {
			return nil // in scratch, which is empty and the sandbox's own
		}
	}
	if err := exists(*owner, m); err != nil {
		return misplaced(m, *owner, err)
	}
	return nil
}

func misplaced(m, owner sandbox.Mount, err error) error {
	return &sandbox.Error{
		Op: "mount " + m.Name, Kind: sandbox.ErrInvalid, Cause: err,
		Problem: fmt.Sprintf("it cannot be placed at %s inside the mount %s", m.Target, owner.Name),
		Hint:    "make the mountpoint there first, or choose another target",
	}
}

// newBind names a host object to the engine. The name is where the object is
// now; whether it is that which the engine has found is seen afterwards.
func newBind(m sandbox.Mount, f *facts) (mount, error) {
	name, err := nameOf(m.Source)
	if err != nil {
		return mount{}, &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrInvalid, Problem: "it has no name any more that could be given to the engine", Cause: err,
			Hint: "mount what is there now"}
	}
	// Podman writes a mount down as a line of CSV, and reads it again.
	if f.podman && strings.ContainsAny(name+m.Target, ",\"\r\n") {
		return mount{}, &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrUnsupported, Problem: "Podman takes no path with a comma, a quote or a line break", Hint: "mount it under another name: --mount SRC:TARGET:ro"}
	}
	b := mount{Type: "bind", Source: name, Target: m.Target, ReadOnly: m.Access == sandbox.ReadOnly, BindOptions: bindOptions{Propagation: "rprivate"}}
	if b.ReadOnly && !older(f.api, recursiveROFrom) && !f.podman {
		b.BindOptions.ReadOnlyForceRecursive = true
	} else if b.ReadOnly {
		// An older engine leaves what is mounted below writable.
		if below := mountedBelow(name); below != "" {
			return mount{}, &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrUnsupported,
				Problem: "another file system is mounted in it at " + below + ", and this engine cannot make that read-only",
				Hint:    "use Docker 25 or newer, or mount the parts by themselves"}
		}
		b.BindOptions.NonRecursive = true
	}
	return b, nil
}
