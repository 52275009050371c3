// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Names in the directory. The store leaves alone what begins with a dot.
const (
	prefix   = ".engine-" // and half of the program's digest
	unready  = ".new-engine"
	lockName = ".engine.lock"
)

// others is how many other programs stay: a user who goes back and forth
// between three versions finds the engine and the router of each.
const others = 5

// freshFor is how long a program counts as just used, so that not each run
// writes to the disk.
const freshFor = time.Hour

// directory is a private directory in which programs are kept.
type directory struct {
	*os.File
	uid uint32
}

// openDirectory opens a directory that this user alone can write to, and on which
// programs can be executed.
func openDirectory(path string) (*directory, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := &directory{File: os.NewFile(uintptr(fd), path), uid: uint32(os.Geteuid())}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &fs)); err != nil {
		d.Close()
		return nil, err
	}
	if st.Uid != d.uid || st.Mode&0o077 != 0 || fs.Flags&unix.ST_NOEXEC != 0 {
		d.Close()
		return nil, errors.New("engine: " + path + " is not private, or nothing can be executed there")
	}
	return d, nil
}

func (d *directory) fd() int { return int(d.Fd()) }

func nameOf(l Label) string { return prefix + l.Digest[:len(l.Digest)/2] }

// find opens the program with that label. ENOENT is the only error that put
// can mend.
func (d *directory) find(l Label) (*os.File, error) {
	fd, err := unix.Openat(d.fd(), nameOf(l), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), nameOf(l))
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, err
	}
	if st.Mode != unix.S_IFREG|mode || st.Uid != d.uid || st.Size != l.Size {
		f.Close()
		return nil, errors.New("engine: " + nameOf(l) + " is not what was put there")
	}
	if now := time.Now(); now.Sub(time.Unix(st.Mtim.Unix())) > freshFor {
		_ = unix.Futimes(fd, []unix.Timeval{unix.NsecToTimeval(now.UnixNano()), unix.NsecToTimeval(now.UnixNano())})
	}
	return f, nil
}

// mode is a kept program's: gVisor's gofer and sentry have another uid as root's.
const mode = 0o555

// put makes the program with that label from what write writes. While another
// process makes it, it is an error.
func (d *directory) put(l Label, write func(io.Writer) error) error {
	lock, err := unix.Openat(d.fd(), lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(lock)
	if err := unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	// With the lock it has no living maker.
	if err := unix.Unlinkat(d.fd(), unready, 0); err != nil && err != unix.ENOENT {
		return err
	}
	if err := d.write(write); err != nil {
		_ = unix.Unlinkat(d.fd(), unready, 0)
		return err
	}
	if err := unix.Renameat(d.fd(), unready, d.fd(), nameOf(l)); err != nil {
		return err
	}
	d.clear(l)
	return nil
}

// write makes the file that is not ready.
func (d *directory) write(write func(io.Writer) error) error {
	// A child that another goroutine forks now would have the file open for
	// writing until it executes, and until then the file could not be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Openat(d.fd(), unready, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), unready)
	if err = write(f); err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	return errors.Join(err, f.Close())
}

// clear removes programs that were not used for longest. A process that has one
// open, or runs it, keeps it.
func (d *directory) clear(l Label) {
	names, _ := d.Readdirnames(-1)
	type other struct {
		name string
		used int64
	}
	var found []other
	for _, name := range names {
		var st unix.Stat_t
		if strings.HasPrefix(name, prefix) && name != nameOf(l) && unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			found = append(found, other{name, st.Mtim.Nano()})
		}
	}
	slices.SortFunc(found, func(a, b other) int { return int(min(max(b.used-a.used, -1), 1)) })
	for _, o := range found[min(others, len(found)):] {
		_ = unix.Unlinkat(d.fd(), o.name, 0)
	}
}
