// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// maxShm bounds /dev/shm, in bytes; it is charged to memory.
const maxShm = 64 << 20

// addScratch gives every writable path its private directory.
func (e *Environment) addScratch() error {
	l := e.o.Plan.Limits
	paths := slices.Clone(e.o.Plan.Writable)
	if e.o.Step != nil { // all that it writes is the template's
		paths = []string{"/dev/shm"}
	} else if home := e.Spec.User.Home; e.o.Plan.Root && !slices.Contains(paths, home) {
		paths = append(paths, home)
	}
	paths = slices.DeleteFunc(paths, e.builtHome)
	for _, p := range e.private {
		e.Spec.Scratch = append(e.Spec.Scratch, sandbox.Scratch{Target: p})
	}
	for _, p := range paths {
		for _, m := range e.Spec.Mounts {
			if m.Dir && sandbox.Within(p, m.Target) {
				return &sandbox.Error{Op: "writable " + sandbox.Quoted(p), Kind: sandbox.ErrInvalid, Problem: "it lies in the mount at " + m.Target,
					Hint: "mount it :cow to keep writes in the sandbox, or :rw to change the host's files"}
			}
		}
		s := sandbox.Scratch{Target: p}
		switch {
		case p == "/tmp":
			s.Size, s.Sticky = l.Tmp, true
		case p == "/dev/shm":
			s.Size, s.Sticky, s.Memory = maxShm, true, true
			if l.Memory > 0 {
				s.Size = min(s.Size, l.Memory)
			}
		}
		e.Spec.Scratch = append(e.Spec.Scratch, s)
	}
	share(e.Spec)
	return nil
}

// share divides the disk limits among the directories they are for, evenly, so
// that all of them together hold them. Most runs have one such directory, and
// /tmp, which has a size of its own but takes part in the number of files.
func share(s *sandbox.Spec) {
	disk := s.Limits.Disk
	var sizes, files int64
	for _, d := range s.Scratch {
		if !d.Memory {
			files++
			if d.Size == 0 {
				sizes++
			}
		}
	}
	switch {
	case s.Sudo && sizes == 0:
		s.RootSize = disk
	case s.Sudo: // what root changes of the root file system takes a quarter
		s.RootSize = disk / 4
		disk -= s.RootSize
	}
	for i := range s.Scratch {
		d := &s.Scratch[i]
		if d.Memory {
			continue
		}
		if d.Size == 0 && disk > 0 {
			d.Size = max(disk/sizes, 1)
		}
		if s.Limits.Inodes > 0 {
			d.Inodes = max(s.Limits.Inodes/files, 1)
		}
	}
}
