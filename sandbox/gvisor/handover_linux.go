// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// handOver returns what the shim gets beside its socket, in the plan's order,
// and a function that closes what had to be opened for it.
//
// As root these are detached copies of the mounts that the sources lie in
// (open_tree(2)): the shim has a mount namespace of its own, and only a
// detached mount can be attached there. It is the very object that was
// checked, whatever happens to its name. Without privilege the sources
// themselves are handed over and the shim compares what was mounted with them.
func (b *box) handOver() (files []*os.File, done func(), err error) {
	var opened []*os.File
	done = func() {
		for _, f := range opened {
			f.Close()
		}
	}
	for _, m := range b.plan.files {
		if m.Source == nil {
			done()
			return nil, nil, sandbox.Errorf(sandbox.ErrInvalid, "mount "+m.Name, "it was not opened")
		}
		f := m.Source
		if euid == 0 {
			if f, err = detach(m); err != nil {
				done()
				return nil, nil, err
			}
			opened = append(opened, f)
		}
		files = append(files, f)
	}
	return files, done, nil
}

// detach copies the mount that a source lies in, with what is mounted below.
func detach(m sandbox.Mount) (*os.File, error) {
	fd, err := unix.OpenTree(int(m.Source.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return nil, &sandbox.Error{
			Op: "mount " + m.Name, Kind: sandbox.ErrUnavailable, Cause: err,
			Problem: "the kernel does not let it be mounted",
			Hint:    "it may lie in another mount namespace; name a directory of this one",
		}
	}
	return os.NewFile(uintptr(fd), m.Name), nil
}
