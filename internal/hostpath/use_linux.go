// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// What a sandbox has read-write is written down in its run directory, for as long as that
// is there and its lock is held: by the sandbox's owner, or by its keeper where it
// outlives its owner. So what is written down ends with the sandbox, however that ends.

// usesFile is in a run directory, ownerLock its lock (internal/store), and usesLock in the
// state directory.
const (
	usesFile  = "mounts"
	ownerLock = "owner.lock"
	usesLock  = "mounts.lock"
	runsDir   = "run"
)

// Use is one read-write mount of a sandbox.
type Use struct {
	// Run is the sandbox's run directory, StateDir the state directory that it is in.
	Run, StateDir string
	// Level says what the sandbox runs on; Own that its locks and shared mappings are its
	// own there.
	Level string
	Own   bool
	// Shared lets it be used by several at once.
	Shared bool
}

// use is a line of usesFile.
type use struct {
	Name  string `json:"name"`
	Own   bool   `json:"own"`
	Level string `json:"level"`
	// Chain is what is mounted, and the directories above it, each by device and inode.
	Chain [][2]uint64 `json:"chain"`
}

// Claim writes down that a sandbox has src read-write. It is refused where another has it,
// or what lies in it, or what it lies in, and the locks of one of the two are its own.
func (s *Source) Claim(u Use) error {
	chain, err := chainOf(s)
	if err != nil {
		return useError(s, err)
	}
	mine := use{Name: s.Real, Own: u.Own, Level: u.Level, Chain: chain}
	f, err := os.OpenFile(filepath.Join(u.StateDir, usesLock), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return useError(s, err)
	}
	defer f.Close()
	if err := flock(f, unix.LOCK_EX); err != nil {
		return useError(s, err)
	}
	if !u.Shared {
		if err := mine.conflict(s, u.Run); err != nil {
			return err
		}
	}
	line, err := json.Marshal(mine)
	if err != nil {
		return useError(s, err)
	}
	to, err := os.OpenFile(filepath.Join(u.Run, usesFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return useError(s, err)
	}
	_, err = to.Write(append(line, '\n'))
	if err = errors.Join(err, to.Close()); err != nil {
		return useError(s, err)
	}
	return nil
}

// Unclaimed calls do while no sandbox has s, and none can claim it. It is refused where
// one has.
func (s *Source) Unclaimed(stateDir string, do func() error) error {
	chain, err := chainOf(s)
	if err != nil {
		return useError(s, err)
	}
	f, err := os.OpenFile(filepath.Join(stateDir, usesLock), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return useError(s, err)
	}
	defer f.Close()
	if err := flock(f, unix.LOCK_EX); err != nil {
		return useError(s, err)
	}
	mine := use{Name: s.Real, Chain: chain}
	id, _, err := mine.met(s, filepath.Join(stateDir, runsDir, "-"), func(*use) bool { return true })
	if err != nil {
		return err
	}
	if id != "" {
		return &sandbox.Error{Op: printable(s.Name), Kind: sandbox.ErrConflict, Problem: "sandbox " + id + " has it", Hint: "end that one first"}
	}
	return do()
}

// conflict is the refusal where another sandbox stands against mine.
func (mine *use) conflict(s *Source, run string) error {
	id, other, err := mine.met(s, run, func(other *use) bool { return mine.Own || other.Own })
	if err != nil || other == nil {
		return err
	}
	what := "it"
	if other.Name != mine.Name {
		what = printable(other.Name)
	}
	level := mine.Level
	if !mine.Own {
		level = other.Level
	}
	return &sandbox.Error{Op: "mount " + printable(s.Name), Kind: sandbox.ErrConflict,
		Problem: fmt.Sprintf("sandbox %s has %s read-write, and locks and shared mappings do not hold between two sandboxes on %s", id, what, level),
		Hint:    "end that one first, mount it :cow or :ro, or write :rw,shared where programs do not rely on locks (SQLite does)"}
}

// met finds a use of a living sandbox other than that of run, which meets mine and counts.
func (mine *use) met(s *Source, run string, counts func(*use) bool) (id string, _ *use, _ error) {
	entries, err := os.ReadDir(filepath.Dir(run))
	if err != nil {
		return "", nil, useError(s, err)
	}
	for _, e := range entries {
		dir := filepath.Join(filepath.Dir(run), e.Name())
		b, err := os.ReadFile(filepath.Join(dir, usesFile))
		if dir == run || err != nil || ended(dir) {
			continue // it has none, or is being taken away
		}
		for line := range bytes.Lines(b) {
			var other use
			if err := json.Unmarshal(line, &other); err != nil {
				return "", nil, useError(s, fmt.Errorf("%s: %w", e.Name(), err))
			}
			if counts(&other) && mine.meets(&other) {
				return e.Name(), &other, nil
			}
		}
	}
	return "", nil, nil
}

// meets says whether one of the two is the other, or lies in it.
func (mine *use) meets(other *use) bool {
	if len(mine.Chain) == 0 || len(other.Chain) == 0 {
		return true // it cannot be told
	}
	return slices.Contains(mine.Chain, other.Chain[0]) || slices.Contains(other.Chain, mine.Chain[0])
}

// ended says whether the lock of a run directory is free.
func ended(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, ownerLock), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	err = flock(f, unix.LOCK_SH|unix.LOCK_NB)
	return err == nil
}

// maxAbove bounds how many directories are above a source.
const maxAbove = 4096

// chainOf is what a source is, and what is above it up to the root.
func chainOf(s *Source) ([][2]uint64, error) {
	chain := [][2]uint64{{s.Dev, s.Ino}}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC}
	var at int
	var err error
	if s.Dir {
		at, err = unix.Openat2(int(s.File.Fd()), "..", &how)
	} else {
		how.Resolve = unix.RESOLVE_NO_SYMLINKS
		at, err = unix.Openat2(unix.AT_FDCWD, filepath.Dir(s.Real), &how)
	}
	for range maxAbove {
		if err != nil {
			return nil, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(at, &st); err != nil {
			unix.Close(at)
			return nil, err
		}
		here := [2]uint64{st.Dev, st.Ino}
		if here == chain[len(chain)-1] {
			unix.Close(at)
			return chain, nil // the root, which is above itself
		}
		chain = append(chain, here)
		above, aerr := unix.Openat2(at, "..", &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC})
		unix.Close(at)
		at, err = above, aerr
	}
	unix.Close(at)
	return nil, errors.New("it lies too deep")
}

func useError(s *Source, err error) error {
	return &sandbox.Error{Op: "mount " + printable(s.Name), Kind: sandbox.ErrUnavailable, Problem: "it cannot be told whether another sandbox has it", Cause: err,
		Hint: "mount it :cow or :ro"}
}
