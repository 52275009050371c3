// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"
)

// id is an object's identity as long as it is held.
type id struct{ dev, ino uint64 }

// object is a file or directory as it lies in the host's tree.
type object struct {
	id    id
	above []id  // the directories above it, nearest first
	at    place // where it lies in its own filesystem
	links uint64
	dir   bool
}

// contains says whether o lies somewhere above p. It is asked in two ways: by
// the directories above p, and by their places in the filesystem, for p may be
// reached through a bind mount that has other directories above it.
func (o *object) contains(p *object) bool {
	for _, a := range p.above {
		if a == o.id {
			return true
		}
	}
	return o.dir && o.id != p.id && p.at.within(o.at)
}

// lookup describes the open object fd. Directories above are walked by "..",
// never by name.
func lookup(fd int, mounts mountTable) (*object, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	o := &object{id: id{st.Dev, st.Ino}, links: uint64(st.Nlink), dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}
	real, err := realPath(fd)
	if err != nil {
		return nil, err
	}
	o.at = mounts.place(real)
	if o.dir {
		o.above, err = walkUp(fd, o.id)
		if !errors.Is(err, unix.EACCES) || real == "/" {
			return o, err
		}
	}
	// A file has no "..", nor has a directory that we may not enter: open the
	// directory it is in and see that it is there.
	dir, err := openPath(unix.AT_FDCWD, path.Dir(real), unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var named, parent unix.Stat_t
	if err := unix.Fstatat(dir, path.Base(real), &named, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	if err := unix.Fstat(dir, &parent); err != nil {
		return nil, err
	}
	if (id{named.Dev, named.Ino}) != o.id {
		return nil, errMoved
	}
	above, err := walkUp(dir, id{parent.Dev, parent.Ino})
	o.above = append([]id{{parent.Dev, parent.Ino}}, above...)
	return o, err
}

var errMoved = errors.New("moved")

// walkUp returns the directories above dir, the root last.
func walkUp(dir int, self id) ([]id, error) {
	var above []id
	fd := dir
	defer func() {
		if fd != dir {
			unix.Close(fd)
		}
	}()
	for at := self; len(above) < maxPath; {
		up, err := openPath(fd, "..", unix.RESOLVE_NO_MAGICLINKS)
		if err != nil {
			return nil, err
		}
		if fd != dir {
			unix.Close(fd)
		}
		fd = up
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, err
		}
		if at == (id{st.Dev, st.Ino}) {
			return above, nil // the root is above itself
		}
		at = id{st.Dev, st.Ino}
		above = append(above, at)
	}
	return nil, errMoved
}
