// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// As root on an engine of this machine what the operator mounts is not named to
// the engine at all. The engine mounts something empty, so that there is a
// mountpoint, and caisson puts the very object that was judged on top of it,
// from an open file into the container's mount namespace, before anything runs
// but the agent. That mount can do what an engine cannot: show the owner of the
// source as the user inside, be read-only with all that is below it, or keep
// writes to itself.

// inserts says whether caisson may do that here.
func (f *facts) inserts(euid int, ociRuntime string) bool {
	return f.namespaces() && euid == 0 && ociRuntime == ""
}

// planInserts gives the engine a mountpoint for everything that is to be
// inserted, and sorts it so that what lies in another comes after it.
func (p *plan) planInserts(mounts []sandbox.Mount) error {
	var all []sandbox.Mount
	for _, m := range mounts {
		all = append(slices.DeleteFunc(all, func(o sandbox.Mount) bool { return o.Target == m.Target }), m)
	}
	slices.SortStableFunc(all, func(a, b sandbox.Mount) int {
		return strings.Count(a.Target, "/") - strings.Count(b.Target, "/")
	})
	for i, m := range all {
		owner := -1
		for j, o := range all[:i] {
			if sandbox.Within(m.Target, o.Target) {
				owner = j // the last is the deepest
			}
		}
		for target := range p.request.HostConfig.Tmpfs {
			if sandbox.Within(target, m.Target) {
				return sandbox.Errorf(sandbox.ErrUnsupported, "mount "+m.Name, "scratch at %s cannot lie in what is mounted at %s", target, m.Target)
			}
		}
		if owner >= 0 {
			if err := exists(all[owner], m); err != nil {
				return misplaced(m, all[owner], err)
			}
			continue
		}
		empty, err := p.empty(m.Dir)
		if err != nil {
			return err
		}
		p.bind(sandbox.Mount{Source: empty, Name: "a mountpoint for " + m.Name, Target: m.Target, Dir: m.Dir})
	}
	p.inserted = all
	return nil
}

// empty is an empty file or directory of this sandbox's own, made once. No user
// inside may read it.
func (p *plan) empty(dir bool) (*os.File, error) {
	name := "empty"
	if dir {
		name = "emptydir"
	}
	if f := p.empties[name]; f != nil {
		return f, nil
	}
	path := filepath.Join(p.spec.StateDir, name)
	make := func() error { return os.WriteFile(path, nil, 0) }
	if dir {
		make = func() error { return os.Mkdir(path, 0) }
	}
	err := make()
	var f *os.File
	if err == nil {
		f, err = openPath(path)
	}
	if err != nil {
		return nil, &sandbox.Error{Op: "prepare sandbox", Kind: sandbox.ErrUnavailable, Problem: "the state directory cannot be written", Cause: err,
			Hint: "free some disk space, or set CAISSON_STATE to a directory on another disk"}
	}
	if p.empties == nil {
		p.empties = map[string]*os.File{}
	}
	p.empties[name] = f
	p.opened = append(p.opened, f)
	return f, nil
}
