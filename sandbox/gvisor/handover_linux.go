// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/idmap"
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
	owners := ownerMaps{to: b.plan.ids}
	defer owners.close()
	for i, m := range b.plan.files {
		f := m.Source
		if euid == 0 && (i > 0 || !b.plan.erofs || isNoExec(f)) { // an image is read, not mounted
			if f, err = owners.mount(m, b.isOperators(m)); err != nil {
				done()
				return nil, nil, err
			}
			opened = append(opened, f)
			if i == 0 {
				if err := allowExec(f, m.Source); err != nil {
					done()
					return nil, nil, err
				}
			}
		}
		files = append(files, f)
	}
	return files, done, nil
}

// isOperators reports whether the operator named m, as opposed to what caisson
// itself puts together.
func (b *box) isOperators(m sandbox.Mount) bool {
	return slices.ContainsFunc(b.spec.Mounts, func(o sandbox.Mount) bool { return o.Source == m.Source && o.Target == m.Target })
}

// ownerMaps makes detached mounts of what operators name, in which the owner
// of the source is the sandbox's user: a file that its owner alone may read is
// readable inside, and what the sandbox writes belongs to the owner, while the
// private uid owns nothing on the host. There is one map for each owner.
type ownerMaps struct {
	to   identity
	maps map[[2]uint32]*idmap.Namespace
}

// mount makes a detached mount of m. Where the kernel or the file system cannot
// translate owners the files show as another user's, which gives code inside
// less, never more.
func (o *ownerMaps) mount(m sandbox.Mount, translate bool) (*os.File, error) {
	if translate {
		ns, err := o.namespace(m)
		if err != nil {
			return nil, err
		}
		f, err := ns.Mount(m.Source)
		if err == nil || !errors.Is(err, sandbox.ErrUnsupported) {
			return f, err
		}
	}
	return detach(m)
}

func (o *ownerMaps) namespace(m sandbox.Mount) (*idmap.Namespace, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(m.Source.Fd()), &st); err != nil {
		return nil, fmt.Errorf("mount %s: %w", m.Name, err)
	}
	owner := [2]uint32{st.Uid, st.Gid}
	if ns := o.maps[owner]; ns != nil {
		return ns, nil
	}
	// gVisor makes a file as its own root and then gives it to the user.
	root := idmap.Map{Host: uint32(o.to.rootID), Shown: uint32(o.to.rootID)}
	uids := []idmap.Map{{Host: st.Uid, Shown: uint32(o.to.hostUID)}}
	if o.to.hostUID != o.to.rootID {
		uids = append(uids, root)
	}
	gids := []idmap.Map{{Host: st.Gid, Shown: uint32(o.to.hostGID)}}
	if o.to.hostGID != o.to.rootID {
		gids = append(gids, root)
	}
	ns, err := idmap.New(uids, gids)
	if err != nil {
		return nil, err
	}
	if o.maps == nil {
		o.maps = map[[2]uint32]*idmap.Namespace{}
	}
	o.maps[owner] = ns
	return ns, nil
}

func (o *ownerMaps) close() {
	for _, ns := range o.maps {
		ns.Close()
	}
}

// detach copies the mount that a source lies in, with what is mounted below.
func detach(m sandbox.Mount) (*os.File, error) {
	fd, err := unix.OpenTree(int(m.Source.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return nil, &sandbox.Error{
			Op: "mount " + m.Name, Kind: sandbox.ErrUnavailable, Cause: err,
			Problem: "the kernel does not let it be mounted",
			Hint:    "caisson doctor says whether mounts can be made here; if they can, it lies in another mount namespace: name a directory of this one",
		}
	}
	return os.NewFile(uintptr(fd), m.Name), nil
}
