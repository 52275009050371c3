// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// Use opens a workspace's volume for a sandbox, and makes it where it is missing. The
// caller closes it.
//
// Errors: ErrConflict where another sandbox has it and locks would not hold between the
// two, ErrExhausted where it is larger than it may be.
func (s *Store) Use(o Options) (*hostpath.Source, error) {
	a := aboutOf(o.Name, o.Workspace)
	a.Made = time.Now().UTC()
	id := a.id()
	for range 3 { // it may be removed meanwhile
		src, err := s.open(id)
		if errors.Is(err, fs.ErrNotExist) {
			if err := s.make(id, a, o.Files); err != nil {
				return nil, volumeError(o.Name, err)
			}
			src, err = s.open(id)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, volumeError(o.Name, err)
		}
		src.Name = "volume " + o.Name
		if err := s.claim(src, id, o); err != nil {
			src.Close()
			return nil, err
		}
		if s.is(id, src) {
			now := time.Now()
			_ = os.Chtimes(s.path(id, aboutFile), now, now) // when it was used last, for people
			return src, nil
		}
		src.Close()
	}
	return nil, &sandbox.Error{Op: "volume " + o.Name, Kind: sandbox.ErrConflict, Problem: "it is being removed", Hint: "try again when that has ended"}
}

// aboutOf is what tells a workspace's volume from others.
func aboutOf(name string, workspace *hostpath.Source) *about {
	return &about{Name: name, Workspace: workspace.Real, Dev: workspace.Dev, Ino: workspace.Ino, Btime: btimeOf(int(workspace.File.Fd()), "")}
}

// btimeOf is when a file was made, in ns; 0 where that is not known.
func btimeOf(dir int, name string) int64 {
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st)
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*int64(time.Second) + int64(st.Btime.Nsec)
}

// claim holds it to its size, and writes down that a sandbox has it.
func (s *Store) claim(src *hostpath.Source, id string, o Options) error {
	if o.Size > 0 {
		bytes, whole := sizeOf(src.File)
		switch {
		case bytes > o.Size:
			return &sandbox.Error{Op: "volume " + o.Name, Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("it has %d MiB, and may have %d MiB", bytes>>20, o.Size>>20),
				Hint: "remove it (caisson volume rm " + id + "), or raise its size in the policy"}
		case !whole:
			return &sandbox.Error{Op: "volume " + o.Name, Kind: sandbox.ErrExhausted, Problem: "how much it has cannot be told: a directory in it is closed, or too deep",
				Hint: "remove it: caisson volume rm " + id}
		}
	}
	err := src.Claim(o.Use)
	var e *sandbox.Error
	if errors.As(err, &e) && e.Kind == sandbox.ErrConflict {
		return &sandbox.Error{Op: "volume " + o.Name, Kind: sandbox.ErrConflict, Problem: e.Problem, Hint: "end that one first, or run in another directory"}
	}
	return err
}

// open opens what code sees of a volume. Code may have closed it to its own user: then it
// could not be looked at, used or removed any more.
func (s *Store) open(id string) (*hostpath.Source, error) {
	at := s.path(id, dataDir)
	fd, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), at)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, err
	}
	if st.Mode&0o700 != 0o700 {
		// fchmod refuses O_PATH; the magic link is the very same object.
		if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), st.Mode&0o777|0o700); err != nil {
			f.Close()
			return nil, err
		}
	}
	return &hostpath.Source{File: f, Name: at, Real: at, Dir: true, UID: st.Uid, GID: st.Gid, Dev: st.Dev, Ino: st.Ino}, nil
}

// is says whether src is still the volume.
func (s *Store) is(id string, src *hostpath.Source) bool {
	var st unix.Stat_t
	return unix.Lstat(s.path(id, dataDir), &st) == nil && st.Dev == src.Dev && st.Ino == src.Ino
}

// make makes a volume. It has its name when it is whole; one that another process
// made meanwhile is as good.
func (s *Store) make(id string, a *about, files map[string]string) error {
	if err := os.Mkdir(s.path(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	making := s.path(makingDir + rand.Text())
	defer os.RemoveAll(making)
	if err := os.MkdirAll(filepath.Join(making, dataDir), 0o700); err != nil {
		return err
	}
	for rel, text := range files {
		at := filepath.Join(making, dataDir, filepath.FromSlash(rel))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			return err
		}
	}
	b, err := json.Marshal(a)
	if err == nil {
		err = os.WriteFile(filepath.Join(making, aboutFile), b, 0o600)
	}
	if err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, making, unix.AT_FDCWD, s.path(id), unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func volumeError(name string, err error) error {
	return &sandbox.Error{Op: "volume " + name, Kind: sandbox.ErrUnavailable, Problem: "it cannot be made or opened", Hint: "look at the state directory: is its disk full?", Cause: err}
}
