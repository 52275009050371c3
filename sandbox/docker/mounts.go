// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// maxMasks bounds how many paths one sandbox may hide: each is a mount.
const maxMasks = 256

// planMounts adds what of the host is shown: the root's own parts, what the
// operator named, and something empty over what is to be hidden.
func (p *plan) planMounts(f *facts) error {
	s := p.spec
	for _, m := range s.Root.Binds {
		if m.Access != sandbox.ReadOnly {
			return sandbox.Errorf(sandbox.ErrInvalid, "mount "+m.Name, "a part of the root must be read-only")
		}
		p.bind(m)
	}
	for _, m := range s.Mounts {
		switch {
		case m.Access == sandbox.CopyOnWrite:
			return &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrUnsupported, Problem: "docker has no copy-on-write mounts",
				Hint: "mount it :ro, or run on a level that has them: --isolation gvisor"}
		case m.Access == sandbox.ReadWrite && !f.readWrite():
			return &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrUnsupported,
				Problem: "what code writes would belong to a uid of the container on this engine", Hint: "mount it :ro and collect what was written"}
		}
		p.bind(m)
	}
	if err := p.hide(s); err != nil {
		return err
	}
	if len(p.binds) > 0 && !f.at.local() {
		return &sandbox.Error{Op: "mount " + p.binds[0].Name, Kind: sandbox.ErrUnsupported,
			Problem: "the engine at " + f.at.String() + " does not see this host's files",
			Hint:    "use an image as the root (--image) and no mounts, or an engine on a socket of this host"}
	}
	guard, err := newSocketGuard(f.at)
	if err != nil {
		return err
	}
	for i, m := range p.binds {
		if m.Source == nil {
			return sandbox.Errorf(sandbox.ErrInvalid, "mount "+m.Name, "it was not opened")
		}
		if err := guard.refuse(m); err != nil {
			return err
		}
		if err := p.placed(i); err != nil {
			return err
		}
		b, err := newBind(m, f)
		if err != nil {
			return err
		}
		p.request.HostConfig.Mounts = append(p.request.HostConfig.Mounts, b)
	}
	return nil
}

// bind adds a bind mount; a later one takes an earlier one's place.
func (p *plan) bind(m sandbox.Mount) {
	p.binds = slices.DeleteFunc(p.binds, func(o sandbox.Mount) bool { return o.Target == m.Target })
	p.binds = append(p.binds, m)
}

// hide binds an empty file or directory over all that is to be hidden.
func (p *plan) hide(s *sandbox.Spec) error {
	if len(s.Masks) > maxMasks {
		return &sandbox.Error{
			Op: "hide paths", Kind: sandbox.ErrUnsupported,
			Problem: fmt.Sprintf("%d paths are to be hidden, docker takes %d", len(s.Masks), maxMasks),
			Hint:    "mount less, or deny whole directories instead of the files in them",
		}
	}
	var empty [2]*os.File
	for _, m := range s.Masks {
		kind := 0
		if m.Dir {
			kind = 1
		}
		if empty[kind] == nil {
			f, err := makeEmpty(s.StateDir, m.Dir)
			if err != nil {
				return &sandbox.Error{Op: "hide paths", Kind: sandbox.ErrUnavailable, Problem: "the state directory cannot be written", Cause: err,
					Hint: "free some disk space, or set CAISSON_STATE to a directory on another disk"}
			}
			empty[kind] = f
			p.opened = append(p.opened, f)
		}
		p.bind(sandbox.Mount{Source: empty[kind], Name: "nothing over " + m.Target, Target: m.Target, Dir: m.Dir})
	}
	return nil
}

// makeEmpty makes what is shown instead of what is hidden. Nobody inside may
// read it.
func makeEmpty(dir string, isDir bool) (*os.File, error) {
	name := filepath.Join(dir, "empty")
	if isDir {
		name += "dir"
		if err := os.Mkdir(name, 0); err != nil {
			return nil, err
		}
	} else if err := os.WriteFile(name, nil, 0); err != nil {
		return nil, err
	}
	return openPath(name)
}

// placed sees to it that the mountpoint of a bind is there already where it
// lies in another host object: the runtime would make it, on the host.
func (p *plan) placed(i int) error {
	m := p.binds[i]
	var owner *sandbox.Mount
	for j := range p.binds {
		o := &p.binds[j]
		if j != i && within(m.Target, o.Target) && (owner == nil || len(o.Target) > len(owner.Target)) {
			owner = o
		}
	}
	if owner == nil {
		return nil // the container's own root, in which the runtime makes it
	}
	for target := range p.request.HostConfig.Tmpfs {
		if within(m.Target, target) && within(target, owner.Target) && target != owner.Target {
			return nil // in scratch, which is empty and the sandbox's own
		}
	}
	if err := exists(*owner, m); err != nil {
		return &sandbox.Error{
			Op: "mount " + m.Name, Kind: sandbox.ErrInvalid, Cause: err,
			Problem: fmt.Sprintf("it cannot be placed at %s inside the mount %s", m.Target, owner.Name),
			Hint:    "make the mountpoint there first, or choose another target",
		}
	}
	return nil
}

// newBind names a host object to the engine. The name is where the object is
// now; whether it is that which the engine has found is seen afterwards.
func newBind(m sandbox.Mount, f *facts) (bindMount, error) {
	name, err := nameOf(m.Source)
	if err != nil {
		return bindMount{}, &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrInvalid, Problem: "it has no name any more that could be given to the engine", Cause: err,
			Hint: "mount what is there now"}
	}
	b := bindMount{Type: "bind", Source: name, Target: m.Target, ReadOnly: m.Access == sandbox.ReadOnly, BindOptions: bindOptions{Propagation: "rprivate"}}
	if b.ReadOnly && !older(f.api, recursiveROFrom) && !f.podman {
		b.BindOptions.ReadOnlyForceRecursive = true
	} else if b.ReadOnly {
		// An older engine leaves what is mounted below writable.
		if below := mountedBelow(name); below != "" {
			return bindMount{}, &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrUnsupported,
				Problem: "another file system is mounted in it at " + below + ", and this engine cannot make that read-only",
				Hint:    "use Docker 25 or newer, or mount the parts by themselves"}
		}
		b.BindOptions.NonRecursive = true
	}
	return b, nil
}
