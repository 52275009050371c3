// SPDX-License-Identifier: Apache-2.0

package shelf

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

// Names on a shelf. The store leaves alone what begins with a dot.
const (
	Prefix   = ".engine-" // and half of the program's digest
	Unready  = ".new-engine"
	LockName = ".engine.lock"
)

// Others is how many other programs stay: whoever goes back and forth between
// three versions finds the engine and the router of each.
const Others = 5

// freshFor is how long a program counts as just used, so that not each run
// writes to the disk.
const freshFor = time.Hour

// Shelf is a private directory in which programs are kept.
type Shelf struct {
	dir *os.File
	uid uint32
}

// Open opens a directory that nobody but this user can write to, and on
// which programs can be executed.
func Open(path string) (*Shelf, error) {
	return openAt(unix.AT_FDCWD, path)
}

// openAt is Open of a name in an open directory.
func openAt(dir int, path string) (*Shelf, error) {
	fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := &Shelf{dir: os.NewFile(uintptr(fd), path), uid: uint32(os.Geteuid())}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &fs)); err != nil {
		s.Close()
		return nil, err
	}
	if st.Uid != s.uid || st.Mode&0o077 != 0 || fs.Flags&unix.ST_NOEXEC != 0 {
		s.Close()
		return nil, errors.New("engine: " + path + " is not private, or nothing can be executed there")
	}
	return s, nil
}

func (s *Shelf) Close() { s.dir.Close() }

func (s *Shelf) fd() int { return int(s.dir.Fd()) }

func NameOf(l Label) string { return Prefix + l.Digest[:len(l.Digest)/2] }

// Find opens the program with that label. ENOENT is the only error that Put
// can mend.
func (s *Shelf) Find(l Label) (*os.File, error) {
	fd, err := unix.Openat(s.fd(), NameOf(l), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), NameOf(l))
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, err
	}
	if st.Mode != unix.S_IFREG|Mode || st.Uid != s.uid || st.Size != l.Size {
		f.Close()
		return nil, errors.New("engine: " + NameOf(l) + " is not what was put there")
	}
	if now := time.Now(); now.Sub(time.Unix(st.Mtim.Unix())) > freshFor {
		_ = unix.Futimes(fd, []unix.Timeval{unix.NsecToTimeval(now.UnixNano()), unix.NsecToTimeval(now.UnixNano())})
	}
	return f, nil
}

// Mode is a kept program's: gVisor's halves have another uid as root's.
const Mode = 0o555

// Put makes the program with that label from what write writes. While somebody
// else is at it, it is an error.
func (s *Shelf) Put(l Label, write func(io.Writer) error) error {
	lock, err := unix.Openat(s.fd(), LockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(lock)
	if err := unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	// With the lock it is nobody's who lives.
	if err := unix.Unlinkat(s.fd(), Unready, 0); err != nil && err != unix.ENOENT {
		return err
	}
	if err := s.write(write); err != nil {
		_ = unix.Unlinkat(s.fd(), Unready, 0)
		return err
	}
	if err := unix.Renameat(s.fd(), Unready, s.fd(), NameOf(l)); err != nil {
		return err
	}
	s.clear(l)
	return nil
}

// write makes the file that is not ready.
func (s *Shelf) write(write func(io.Writer) error) error {
	// A child that another goroutine forks now would have the file open for
	// writing until it executes, and until then nobody could execute the file.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Openat(s.fd(), Unready, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), Unready)
	if err = write(f); err == nil {
		err = errors.Join(f.Chmod(Mode), f.Sync())
	}
	return errors.Join(err, f.Close())
}

// clear removes programs that were not used for longest. Whoever has one open,
// or runs it, keeps it.
func (s *Shelf) clear(l Label) {
	names, _ := s.dir.Readdirnames(-1)
	type other struct {
		name string
		used int64
	}
	var others []other
	for _, name := range names {
		var st unix.Stat_t
		if strings.HasPrefix(name, Prefix) && name != NameOf(l) && unix.Fstatat(s.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			others = append(others, other{name, st.Mtim.Nano()})
		}
	}
	slices.SortFunc(others, func(a, b other) int { return int(min(max(b.used-a.used, -1), 1)) })
	for _, o := range others[min(Others, len(others)):] {
		_ = unix.Unlinkat(s.fd(), o.name, 0)
	}
}
