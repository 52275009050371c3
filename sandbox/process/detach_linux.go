// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/idmap"
	"github.com/caisson-run/caisson/sandbox"
)

// detach makes a detached mount of every source, for a builder that has no
// rights over the host's mounts. The files are the caller's to close, on
// failure too.
//
// In what operators name the owner of the source is the sandbox's user: a file
// that its owner alone may read is readable inside, and what the sandbox writes
// belongs to the owner, while the private uid owns nothing on the host.
func (w *rootfs) detach(ids identity) (opened []*os.File, err error) {
	owners := ownerMaps{to: ids}
	defer owners.close()
	operators := 1 + len(w.spec.Root.Binds)
	for i := range w.sources {
		s := &w.sources[i]
		if s.detached, err = owners.mount(s, i >= operators); err != nil {
			return opened, err
		}
		if s.mount.Access == sandbox.CopyOnWrite && s.mount.Dir {
			if err := w.layer(s, ids); err != nil {
				return append(opened, s.detached), err
			}
		}
		opened = append(opened, s.detached)
	}
	for i := range w.devices {
		s := &w.devices[i]
		if s.detached, err = detach(s); err != nil {
			return opened, err
		}
		opened = append(opened, s.detached)
	}
	return opened, nil
}

// ownerMaps makes mounts with translated owners. There is one map for each
// owner.
type ownerMaps struct {
	to   identity
	maps map[[2]uint32]*idmap.Namespace
}

// mount makes a detached mount of s. Where the kernel or the file system cannot
// translate owners the files show as another user's, which gives code inside
// less, never more.
func (o *ownerMaps) mount(s *source, translate bool) (*os.File, error) {
	if !translate {
		return detach(s)
	}
	ns, err := o.namespace(s.mount)
	if err != nil {
		return nil, err
	}
	f, err := ns.Mount(s.mount.Source)
	if errors.Is(err, sandbox.ErrUnsupported) {
		return detach(s)
	}
	if err != nil {
		return nil, err
	}
	return f, restrict(f, s)
}

func (o *ownerMaps) namespace(m sandbox.Mount) (*idmap.Namespace, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(m.Source.Fd()), &st); err != nil {
		return nil, &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrInvalid, Problem: "it cannot be looked at", Cause: err}
	}
	owner := [2]uint32{st.Uid, st.Gid}
	if ns := o.maps[owner]; ns != nil {
		return ns, nil
	}
	ns, err := idmap.New([]idmap.Map{{Host: st.Uid, Shown: uint32(o.to.hostUID)}}, []idmap.Map{{Host: st.Gid, Shown: uint32(o.to.hostGID)}})
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
func detach(s *source) (*os.File, error) {
	fd, err := unix.OpenTree(int(s.mount.Source.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return nil, &sandbox.Error{
			Op: "mount " + s.mount.Name, Kind: sandbox.ErrUnavailable, Cause: err,
			Problem: "the kernel does not let it be mounted",
			Hint:    "caisson doctor says whether mounts can be made here; if they can, it lies in another mount namespace: name a directory of this one",
		}
	}
	f := os.NewFile(uintptr(fd), s.mount.Name)
	return f, restrict(f, s)
}

// restrict adds a source's attributes to its mount, and takes it out of the
// group of the mount that it is a copy of: what is mounted in one of a group
// shows in all (mount_namespaces(7)), so what is mounted on the copy would show
// on the host.
func restrict(f *os.File, s *source) error {
	attr := unix.MountAttr{Attr_set: s.attr, Propagation: unix.MS_PRIVATE}
	if s.attr == deviceAttributes { // the node that root makes lies where no device may work
		attr.Attr_clr = unix.MOUNT_ATTR_NODEV
	}
	if err := unix.MountSetattr(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		f.Close()
		return &sandbox.Error{Op: "mount " + s.mount.Name, Kind: sandbox.ErrUnavailable, Problem: "the kernel does not let it be restricted", Cause: err,
			Hint: "Linux 5.12 or newer can"}
	}
	return nil
}
