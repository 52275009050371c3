// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Source says whose changes a layer has.
type Source struct {
	Root   *os.File // the workspace on the host, a directory; O_PATH is enough
	Name   string   // its absolute path on the host
	Target string   // and inside
	Owner  string   // the key that the set belongs to; empty is the operator
	Run    string
	Began  time.Time // of the run, by Clock: a file of the host that was changed since is a conflict
	// KeepIgnored keeps what the .gitignore files of the host ignore.
	KeepIgnored bool
	// Exclude says of paths below the workspace that they are no part of it: what is
	// mounted there, and what the policy hides. May be nil.
	Exclude func(path string) bool
}

// Keep makes a set of a layer. It is nil when nothing was changed that is kept: git alone
// refreshes its index, and a build makes what is ignored.
//
// ErrInvalid: the layer is malformed. ErrExhausted: it does not fit. Nothing is kept then.
// What is in the workspace is read only where the layer has something at its path.
func (s *Store) Keep(ctx context.Context, src Source, from io.Reader) (*Set, error) {
	dev, inode, err := identity(src.Root)
	if err != nil {
		return nil, hostError(src.Name, err)
	}
	dir, lock, room, err := s.begin(src.Owner)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	defer os.RemoveAll(dir)
	c, err := newContents(dir, room, s.limit(src.Owner))
	if err != nil {
		return nil, err
	}
	h := &host{root: src.Root, began: src.Began}
	f := &filter{exclude: src.Exclude, repositories: map[string]int{}}
	if !src.KeepIgnored {
		f.ignores = newIgnores(h)
	}
	l, err := readLayer(ctx, &stream{ctx, from, maxStream}, f, c)
	if err != nil {
		return nil, err
	}
	entries, err := compare(ctx, l, h)
	if err != nil {
		return nil, err
	}
	git, err := compareGit(ctx, l, h)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 && !slices.ContainsFunc(git, movesBranch) {
		return nil, nil
	}
	set := &Set{Entries: entries, Git: git, Root: Root{Dev: dev, Inode: inode}}
	set.Name, set.Target, set.Owner, set.Run = src.Name, src.Target, src.Owner, src.Run
	set.Created = s.o.Now().UTC().Round(0)
	set.Expires = set.Created.Add(s.o.MaxAge)
	set.count(f)
	hold(set, h, dir)
	if set.Bytes, err = c.keepOnly(slices.Concat(entries, git)); err != nil {
		return nil, err
	}
	return set, s.commit(dir, set)
}

// movesBranch says that a change of a repository is that of a branch: something was
// committed, or another branch was taken.
func movesBranch(e Entry) bool {
	return e.Type != Dir && (e.Path == gitDir+"/HEAD" || e.Path == gitDir+"/packed-refs" || strings.HasPrefix(e.Path, gitDir+"/refs/heads/"))
}

// maxStream bounds a layer as it comes, with what is not kept of it: a file with holes
// may be any size, and its zeros come all the same.
const maxStream = 16 << 30

// stream is a layer that ends with a context, and is bounded.
type stream struct {
	ctx  context.Context
	from io.Reader
	left int64
}

// Read reads on.
func (s *stream) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	if s.left <= 0 {
		return 0, &sandbox.Error{Op: "read what was changed", Kind: sandbox.ErrExhausted, Problem: fmt.Sprintf("the layer has more than %d bytes", int64(maxStream)), Hint: "code inside may have made a large file with holes"}
	}
	n, err := s.from.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	return n, err
}

// count takes over what the filter counted.
func (set *Set) count(f *filter) {
	for i := range set.Entries {
		if set.Entries[i].Type != Dir {
			set.Files++
		}
	}
	set.Ignored, set.Skipped, set.SkippedPaths = f.ignored, f.skipped, f.skippedPaths
	for path, n := range f.repositories {
		set.Repositories = append(set.Repositories, Repository{Path: path, Changes: n})
	}
	slices.SortFunc(set.Repositories, func(a, b Repository) int { return comparePaths(a.Path, b.Path) })
}

// begin makes a directory for a set that is not whole yet, and says what it may take.
func (s *Store) begin(owner string) (dir string, lock *os.File, room *reservation, err error) {
	err = s.exclusively(func() error {
		if err := s.sweep(); err != nil {
			return err
		}
		dir = s.path(makingDir + rand.Text())
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		room = &reservation{store: s, dir: dir, held: roomHeld{Owner: owner}}
		lock, err = lockFile(filepath.Join(dir, setLock), lockTry)
		return err
	})
	if err != nil {
		err = storeError("keep what was changed", err)
	}
	return dir, lock, room, err
}

// commit gives a set its ID and its place.
func (s *Store) commit(dir string, set *Set) error {
	return s.exclusively(func() error {
		room, err := s.room(set.Owner, dir)
		if err != nil {
			return err
		}
		if set.Bytes > room {
			return s.full(set.Owner, room)
		}
		if err := os.Remove(filepath.Join(dir, roomFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return storeError("keep what was changed", err)
		}
		for {
			var b [idLength / 2]byte
			_, _ = rand.Read(b[:]) // it does not fail
			set.ID = hex.EncodeToString(b[:])
			if _, err := os.Lstat(s.path(set.ID)); errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
		if err := set.write(dir); err != nil {
			return storeError("keep what was changed", err)
		}
		if err := os.Rename(dir, s.path(set.ID)); err != nil {
			return storeError("keep what was changed", err)
		}
		return nil
	})
}

// hostError is a failure to look at the workspace.
func hostError(name string, err error) error {
	if e := (*sandbox.Error)(nil); errors.As(err, &e) {
		return err
	}
	return &sandbox.Error{Op: "compare with " + sandbox.Quoted(name), Kind: sandbox.ErrUnavailable, Problem: "the workspace cannot be looked at", Hint: "see that it is still there and can be read", Cause: err}
}
