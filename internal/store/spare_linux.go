// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Most runs follow another one, and making and removing a directory with a lock in it
// costs a file system two inodes, which can take longer than all else that is done with
// them. So the owner of a run directory that is done with it keeps the empty directory
// and its lock under another name, and the next run takes both by renaming them.
//
// Only these two are kept, which no sandbox ever has a descriptor of: whatever one left
// in the directory is deleted as ever. Who sweeps a dead owner's directory deletes it
// all, since something of that owner's may still be about to.
//
// The lock is the only right to a directory, under whatever name it lies: it is
// renamed, taken and deleted by who holds its lock, and only after a look whether the
// name is that directory's still.
const (
	spare  = ".spare-" // and a number: such a name is never an id's
	spares = 8         // as many are kept
	// maxSpare is how large a directory may be, in bytes. Most file systems never
	// make one smaller, and what ran here may have filled it.
	maxSpare = 16 << 10
)

// keepSpare gives dir/name, which is open as top, has nothing in it but its lock, and
// is held by that, the name of a spare.
func keepSpare(dir *os.File, name string, top, lock *os.File) (kept bool) {
	if judgeSpare(top, lock) != nil || !sameFile(dir, name, top) || !sameFile(top, ownerLck, lock) {
		return false
	}
	for n := range spares {
		err := unix.Renameat2(int(dir.Fd()), name, int(dir.Fd()), spare+strconv.Itoa(n), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err == nil
		}
	}
	return false
}

// takeSpare renames a spare to dir/id and returns its lock, held; nil where there is
// none. One that cannot be renamed is deleted: it may lie in a lower layer of an overlay
// (EXDEV), where it was made with the image.
func takeSpare(dir *os.File, id string) (*os.File, error) {
	for n := range spares {
		name := spare + strconv.Itoa(n)
		lock := holdSpare(dir, name)
		if lock == nil {
			continue
		}
		err := unix.Renameat2(int(dir.Fd()), name, int(dir.Fd()), id, unix.RENAME_NOREPLACE)
		if err == nil {
			return lock, nil
		}
		if errors.Is(err, unix.EEXIST) {
			lock.Close()
			return nil, err
		}
		_ = removeTree(dir, name)
		lock.Close()
	}
	return nil, nil
}

// holdSpare takes the lock of a spare that is as it was left; nil where there is none.
func holdSpare(dir *os.File, name string) *os.File {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	top := os.NewFile(uintptr(fd), name)
	defer top.Close()
	return lockSpare(dir, name, top)
}

// lockSpare takes the lock of an open spare. One that is not as it was left is deleted,
// which is no reason to refuse a run.
func lockSpare(dir *os.File, name string, top *os.File) *os.File {
	lock, err := flock(top, ownerLck, 0, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.ENOENT) {
		// Who deleted it died between the lock and the directory.
		_ = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
	}
	if err != nil {
		return nil
	}
	// Somebody may have had it, under another name, since it was opened.
	if !sameFile(dir, name, top) {
		lock.Close()
		return nil
	}
	if judgeSpare(top, lock) != nil || !sameFile(top, ownerLck, lock) || !holdsOnly(top, ownerLck) {
		_ = removeTree(dir, name)
		lock.Close()
		return nil
	}
	return lock
}

// errSpare says that a directory or its lock is not as this package makes them.
var errSpare = errors.New("it is not as it was made")

// judgeSpare says whether a directory and its lock are this user's alone, and small.
func judgeSpare(top, lock *os.File) error {
	var d, l unix.Stat_t
	if err := errors.Join(unix.Fstat(int(top.Fd()), &d), unix.Fstat(int(lock.Fd()), &l)); err != nil {
		return err
	}
	if err := judgeOwn(&d); err != nil {
		return err
	}
	if d.Mode&0o7777 != 0o700 || d.Size > maxSpare || l.Uid != d.Uid || l.Dev != d.Dev || l.Nlink != 1 || l.Mode&0o077 != 0 || l.Size != 0 {
		return errSpare
	}
	return nil
}

// sameFile says whether dir/name is the open file f.
func sameFile(dir *os.File, name string, f *os.File) bool {
	var want, got unix.Stat_t
	err := errors.Join(unix.Fstat(int(f.Fd()), &want), unix.Fstatat(int(dir.Fd()), name, &got, unix.AT_SYMLINK_NOFOLLOW))
	return err == nil && want.Dev == got.Dev && want.Ino == got.Ino
}

// holdsOnly says whether name is all that is in a directory.
func holdsOnly(dir *os.File, name string) bool {
	names, err := dir.Readdirnames(2)
	return err == nil && len(names) == 1 && names[0] == name
}
