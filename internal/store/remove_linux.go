// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// RemoveTree deletes directory parent/name, which is not used and whose content is
// hostile: it follows no link, and leaves alone what is mounted below it.
func RemoveTree(parent *os.File, name string) error { return removeTree(parent, name) }

// removeTree deletes parent/name, a directory, with everything below it and
// its owner.lock last. What a sandbox left is hostile: it may be a million
// levels deep, unreadable, or full of links.
//
// A directory that is not empty is moved up into parent/name itself before it is looked
// into, so that no more than three descriptors are open and nothing recurses, however
// deep the tree. No link is followed. A mount cannot be moved (EBUSY) nor entered
// (RESOLVE_NO_XDEV): what it shows is left alone and reported. A directory that is gone
// already is no error, nor is what another process takes away meanwhile: the keeper of
// a sandbox whose owner was killed does so with the directory that the next one sweeps.
func removeTree(parent *os.File, name string) error {
	top, err := openSub(parent, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	moved := 0
	err = eachName(top, ownerLck, func(entry string) error {
		err := unlink(top, entry, 0)
		if !errors.Is(err, unix.EISDIR) {
			return err
		}
		if err = removeDir(top, entry, &moved); errors.Is(err, unix.ENOENT) {
			return nil // what is left of it is met again
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := unlink(top, ownerLck, 0); err != nil {
		return err
	}
	return unlink(parent, name, unix.AT_REMOVEDIR)
}

// removeDir removes directory top/name after moving the directories in it up
// into top, where removeTree meets them again.
func removeDir(top *os.File, name string, moved *int) error {
	dir, err := openSub(top, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = eachName(dir, "", func(entry string) error {
		err := unlink(dir, entry, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unlink(dir, entry, unix.AT_REMOVEDIR)
		}
		if errors.Is(err, unix.ENOTEMPTY) {
			err = moveUp(dir, entry, top, moved)
		}
		return err
	})
	if err != nil {
		return err
	}
	return unlink(top, name, unix.AT_REMOVEDIR)
}

// moveUp renames directory dir/name to a fresh name in top.
func moveUp(dir *os.File, name string, top *os.File, moved *int) error {
	// Moving a directory writes its "..": it must be writable, which opening
	// it sees to.
	sub, err := openSub(dir, name)
	if err != nil {
		return err
	}
	sub.Close()
	for {
		*moved++
		err := unix.Renameat2(int(dir.Fd()), name, int(top.Fd()), ".moved-"+strconv.Itoa(*moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// openSub opens directory parent/name itself, on the same mount, and makes it
// usable where the sandbox took its permissions away.
func openSub(parent *os.File, name string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(int(parent.Fd()), name, &how)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&0o700 != 0o700 {
		// fchmod refuses O_PATH; the magic link is the very same object.
		if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700); err != nil {
			return nil, err
		}
	}
	rfd, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(rfd), name), nil
}

// eachName calls remove for what is in dir until nothing but keep is left. It
// reads some thousand names at a time: a sandbox may have made millions.
func eachName(dir *os.File, keep string, remove func(name string) error) error {
	for {
		if _, err := dir.Seek(0, 0); err != nil {
			return err
		}
		names, err := dir.Readdirnames(4096)
		if errors.Is(err, unix.ENOENT) {
			return nil // the directory is gone
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(names) == 0 || len(names) == 1 && names[0] == keep {
			return nil
		}
		for _, name := range names {
			if name == keep {
				continue
			}
			if err := remove(name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
}

// unlink removes one name; that it is gone already is no error.
func unlink(dir *os.File, name string, flags int) error {
	err := unix.Unlinkat(int(dir.Fd()), name, flags)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
