// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// The names inside the state directory. Names with a dot are never an id's.
const (
	runs     = "run"
	newRun   = ".new-"      // a run directory that is being made
	making   = ".making"    // shared by makers, exclusive for who clears away .new-*
	ownerLck = "owner.lock" // in each run directory; flock'ed by its owner
	unused   = ".spare-"    // an empty directory with its lock, which earlier versions kept for the next run
)

// validID says whether id may name a run directory: 1 to 128 letters, digits,
// '_' and '-', so nothing that means something in a path.
func validID(id string) bool {
	other := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}
	return id != "" && len(id) <= 128 && !strings.ContainsFunc(id, other)
}

// RunDir is the directory of one sandbox. It is its maker's until Remove, or
// until the maker's process ends.
//
// The lock belongs to an open file, which a child forked without exec shares:
// such a child must close every descriptor, or it keeps the sandbox alive.
type RunDir struct {
	id   string
	path string
	runs *os.File // the directory that holds it

	mu   sync.Mutex
	lock *os.File // owner.lock, flock'ed; nil once removed
}

// ID is what the directory was made for.
func (r *RunDir) ID() string { return r.id }

// Path is the directory's absolute path.
func (r *RunDir) Path() string { return r.path }

// Run makes the directory of sandbox id and holds it. It returns ErrConflict
// when there is one already and ErrInvalid when id is not 1 to 128 letters,
// digits, '_' or '-'.
func (d *Dir) Run(id string) (*RunDir, error) {
	op := "run directory " + id
	if !validID(id) {
		return nil, &sandbox.Error{Op: "run directory", Kind: sandbox.ErrInvalid, Problem: "the sandbox's id is not made of letters, digits, _ and -"}
	}
	dir, err := d.openRuns()
	if err != nil {
		return nil, walkError(d.path, filepath.Join(d.path, runs), err)
	}
	lock, err := makeRun(dir, id)
	if err != nil {
		dir.Close()
		if errors.Is(err, unix.EEXIST) {
			return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrConflict, Problem: "it exists already", Hint: "give each sandbox an id of its own"}
		}
		return nil, walkError(d.path, filepath.Join(d.path, runs, id), err)
	}
	return &RunDir{id: id, path: filepath.Join(d.path, runs, id), runs: dir, lock: lock}, nil
}

// openRuns opens the directory that holds the run directories and judges it as
// the state directory itself: it may have been replaced since.
func (d *Dir) openRuns() (*os.File, error) {
	fd, err := unix.Openat(int(d.root.Fd()), runs, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = judgeOwn(&st)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), runs), nil
}

// makeRun makes dir/id with its lock taken before it can be seen.
//
// The directory is made under another name first. A sweep of such names after a
// crash takes the making lock exclusively, so that it meets none whose maker is
// between mkdir and rename.
func makeRun(dir *os.File, id string) (*os.File, error) {
	gate, err := lockFile(dir, making, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer gate.Close()

	tmp := newRun + rand.Text()
	if err := unix.Mkdirat(int(dir.Fd()), tmp, 0o700); err != nil {
		return nil, err
	}
	lock, err := fillRun(dir, tmp)
	if err == nil {
		err = unix.Renameat2(int(dir.Fd()), tmp, int(dir.Fd()), id, unix.RENAME_NOREPLACE)
		if err == nil {
			return lock, nil
		}
		lock.Close()
	}
	return nil, errors.Join(err, removeTree(dir, tmp))
}

// fillRun puts a held owner.lock into a new directory.
func fillRun(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	sub := os.NewFile(uintptr(fd), name)
	defer sub.Close()
	// An odd umask must not leave a directory that its owner cannot use.
	if err := sub.Chmod(0o700); err != nil {
		return nil, err
	}
	return lockFile(sub, ownerLck, unix.LOCK_EX|unix.LOCK_NB)
}

// lockFile opens dir/name, makes it where it is missing, and locks it.
func lockFile(dir *os.File, name string, how int) (*os.File, error) {
	return flock(dir, name, unix.O_CREAT, how)
}

// flock opens dir/name, which must be an ordinary file, and locks it.
// O_NONBLOCK keeps a FIFO in its place from holding us up.
func flock(dir *os.File, name string, create, how int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDWR|create|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.EINVAL
	}
	for err == nil {
		if err = unix.Flock(fd, how); !errors.Is(err, unix.EINTR) {
			break
		}
		err = nil
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Remove deletes the directory with everything in it, and gives up the lock. It
// follows no link and crosses no mount: a mount left inside is an error and
// what it shows stays untouched. Remove is idempotent; after an error it may be
// called again, and the directory stays held. Whatever ran with the directory has
// ended by then.
func (r *RunDir) Remove() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return nil
	}
	if err := removeTree(r.runs, r.id); err != nil {
		return &sandbox.Error{Op: "remove " + r.path, Kind: sandbox.ErrUnavailable, Problem: "something in it cannot be removed", Cause: err}
	}
	r.lock.Close()
	r.runs.Close()
	r.lock = nil
	return nil
}

// Hold is the lock, for who keeps a copy of it so that the directory stays held when
// this process ends; nil once it is removed or released.
func (r *RunDir) Hold() *os.File {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lock
}

// Release lets go of the directory without removing it. It stays held while there
// is a copy of Hold, and is swept when there is none. Remove does nothing
// afterwards.
func (r *RunDir) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return
	}
	r.lock.Close()
	r.runs.Close()
	r.lock = nil
}

// RunPath is where the directory of sandbox id is, or would be; ErrInvalid for what
// is no id.
func (d *Dir) RunPath(id string) (string, error) {
	if !validID(id) {
		return "", sandbox.Errorf(sandbox.ErrInvalid, "run directory", "the sandbox's id is not made of letters, digits, _ and -")
	}
	return filepath.Join(d.path, runs, id), nil
}

// Adopt takes over the directory of sandbox id from an owner that is gone, by a copy
// of its Hold, which is the RunDir's from then on. ErrConflict when lock is not the
// lock of that directory, or another process holds it.
func (d *Dir) Adopt(id string, lock *os.File) (*RunDir, error) {
	path, err := d.RunPath(id)
	if err != nil {
		return nil, err
	}
	dir, err := d.openRuns()
	if err == nil {
		if err = sameLock(dir, id, lock); err == nil {
			return &RunDir{id: id, path: path, runs: dir, lock: lock}, nil
		}
		dir.Close()
	}
	return nil, &sandbox.Error{Op: "run directory " + id, Kind: sandbox.ErrConflict, Problem: "it cannot be taken over with what came for it", Cause: err}
}

// sameLock says whether lock is dir/id's, and this process has it: a copy of the
// description that holds it may lock it again.
func sameLock(dir *os.File, id string, lock *os.File) error {
	fd, err := unix.Openat2(int(dir.Fd()), id+"/"+ownerLck, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var want, got unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &want), unix.Fstat(int(lock.Fd()), &got)); err != nil {
		return err
	}
	if want.Dev != got.Dev || want.Ino != got.Ino {
		return errors.New("the lock is another directory's")
	}
	return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
