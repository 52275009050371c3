// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// The mount calls of scripts. All of them work on descriptors (fsopen(2),
// open_tree(2), move_mount(2)): a name is looked up once, without following a
// link, and what was found is what is mounted on.

const sizeofMountAttr = int(unsafe.Sizeof(unix.MountAttr{}))

// noLinks opens what has a name, not what a link there points to.
const noLinks = unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW

// place opens a mountpoint. It need not be asked what is there: what can be
// mounted on it is either the one or the other.
func (s *script) place(target string) slot {
	f := s.slot()
	how := &unix.OpenHow{Flags: noLinks, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	s.call(unix.SYS_OPENAT2, unix.AT_FDCWD, target, to(how), int(unix.SizeofOpenHow)).save(f)
	return f
}

// attach mounts what is open as m at target, and closes m.
func (s *script) attach(m any, target string) {
	at := s.place(target)
	s.call(unix.SYS_MOVE_MOUNT, m, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	s.close(at)
	if f, ok := m.(slot); ok {
		s.close(f)
	}
}

// clone makes a detached mount of what is at path, with what is mounted below.
func (s *script) clone(path string) slot {
	f := s.slot()
	s.call(unix.SYS_OPEN_TREE, unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW).save(f)
	return f
}

// restrict adds attributes to a mount and those below it.
func (s *script) restrict(m any, attributes uint64) {
	attr := &unix.MountAttr{Attr_set: attributes}
	s.call(unix.SYS_MOUNT_SETATTR, m, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, to(attr), sizeofMountAttr)
}

// attributes changes those of a mount alone.
func (s *script) attributes(m slot, change unix.MountAttr) {
	s.call(unix.SYS_MOUNT_SETATTR, m, "", unix.AT_EMPTY_PATH, to(&change), sizeofMountAttr)
}

// filesystem makes a detached mount of a new file system of the kernel's own.
func (s *script) filesystem(kind string, attributes uint64, options ...string) slot {
	m := s.slot()
	fs := s.slot()
	s.call(unix.SYS_FSOPEN, kind, unix.FSOPEN_CLOEXEC).save(fs)
	for i := 0; i < len(options); i += 2 {
		if options[i+1] == "" {
			s.call(unix.SYS_FSCONFIG, fs, unix.FSCONFIG_SET_FLAG, options[i], nil, 0)
			continue
		}
		s.call(unix.SYS_FSCONFIG, fs, unix.FSCONFIG_SET_STRING, options[i], options[i+1], 0)
	}
	s.call(unix.SYS_FSCONFIG, fs, unix.FSCONFIG_CMD_CREATE, nil, nil, 0)
	s.call(unix.SYS_FSMOUNT, fs, unix.FSMOUNT_CLOEXEC, attributes).save(m)
	s.close(fs)
	return m
}

// scratchOptions are those of a private writable directory.
func scratchOptions(sc sandbox.Scratch, u sandbox.User) []string {
	options := []string{"mode", "0755", "uid", strconv.Itoa(u.UID), "gid", strconv.Itoa(u.GID)}
	if sc.Sticky {
		options = []string{"mode", "1777"}
	}
	if sc.Size > 0 {
		options = append(options, "size", strconv.FormatInt(sc.Size, 10))
	}
	if sc.Inodes > 0 {
		options = append(options, "nr_inodes", strconv.FormatInt(sc.Inodes, 10))
	}
	return options
}

// source is a host object that a sandbox shows.
//
// Root hands over a detached mount of the very object that was checked, made
// beforehand with root's rights: its owner may be translated. An ordinary user
// cannot: its mounts belong to another namespace, which has copies of them that
// only names lead to. So the builder clones what has the name, compares device
// and inode with those of the object that was checked, and attaches the clone.
type source struct {
	mount    sandbox.Mount
	detached *os.File // for root
	layered  bool     // a layer lies over it, which keeps what is written
	name     string   // for others
	dev, ino uint64
	mode     uint32 // permissions only
	regular  bool
	size     int64
	attr     uint64
}

func newSource(m sandbox.Mount, attr uint64) (source, error) {
	if m.Source == nil {
		return source{}, sandbox.Errorf(sandbox.ErrInvalid, "mount "+m.Name, "it was not opened")
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(m.Source.Fd()), &st); err != nil {
		return source{}, &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrInvalid, Problem: "it cannot be looked at", Cause: err}
	}
	s := source{mount: m, dev: st.Dev, ino: st.Ino, mode: st.Mode & 0o777, regular: st.Mode&unix.S_IFMT == unix.S_IFREG, size: st.Size, attr: attr}
	var err error
	if s.name, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", m.Source.Fd())); err != nil {
		return source{}, &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrUnavailable, Problem: "the kernel does not tell its name", Cause: err, Hint: "mount /proc"}
	}
	return s, nil
}

// open makes a detached mount of the source, or takes the one that there is.
func (s *script) open(src *source) any {
	if src.detached != nil {
		s.keep = append(s.keep, src.detached)
		return int(src.detached.Fd())
	}
	m := s.clone(src.name)
	st := new(unix.Stat_t)
	s.call(unix.SYS_FSTAT, m, to(st))
	s.doing("mount %s: it was replaced meanwhile", src.mount.Name)
	s.same(&st.Dev, src.dev)
	s.same(&st.Ino, src.ino)
	s.doing("mount %s", src.mount.Name)
	s.restrict(m, src.attr)
	return m
}
