// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	treePrefix = "host-"         // a finished tree
	tempPrefix = ".tmp-"         // one that is being built or removed
	keepTrees  = 16              // finished trees kept, in use or not; each is 1 to 2 MiB
	touchAfter = time.Hour       // how exactly the last use is known
	staleTemp  = 1 * time.Minute // a temporary file, which is not held
	openTries  = 20              // a tree that is pruned while it is opened is built anew
)

// cache is a directory of finished trees.
type cache struct {
	dir    string
	prefix string // of the names of finished trees
	keep   int    // how many of them stay; 0 is all
	// size bounds how much those take together that stay, of which weighs is the one large
	// file, in bytes; 0 is no bound. The one that is being made does not count.
	size   int64
	weighs string

	onTemp func() // for tests: called when a temporary tree is made and not held yet
}

// openCache makes the directory when it is missing and refuses one that another
// user could write to: what is in it becomes a sandbox's root.
func openCache(dir string) (cache, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return cache{}, cacheError("open cache "+dir, err)
	}
	return cache{dir: dir, prefix: treePrefix, keep: keepTrees}, private(dir)
}

// private refuses a cache that another user could write to.
func private(dir string) error {
	op := "open cache " + dir
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return cacheError(op, err)
	}
	bad := ""
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		bad = "it is no directory"
	case int(st.Uid) != os.Geteuid():
		bad = "it belongs to another user"
	case st.Mode&0o077 != 0:
		bad = "others may enter it"
	}
	if bad != "" {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: bad,
			Hint: "give a directory of your own with mode 0700", Rule: "built-in: private cache"}
	}
	return nil
}

// tree returns the tree called key, held by a shared lock, and builds it with
// write when it does not exist.
func (c cache) tree(ctx context.Context, key string, write func(ctx context.Context, dir string) error) (*os.File, error) {
	for range openTries {
		f, err := c.open(key)
		if f != nil {
			c.sweep()
		}
		if f != nil || err != nil {
			return f, err
		}
		if err := c.buildOnce(ctx, key, write); err != nil {
			return nil, err
		}
	}
	return nil, sandbox.Errorf(sandbox.ErrUnavailable, "build root filesystem", "its tree in the cache vanished %d times while it was opened", openTries)
}

// buildOnce builds the tree unless another builder is at it, and waits for that
// one.
func (c cache) buildOnce(ctx context.Context, key string, write func(ctx context.Context, dir string) error) error {
	done, err := c.alone(ctx, key)
	if err != nil {
		return err
	}
	defer done()
	if _, err := os.Lstat(filepath.Join(c.dir, c.prefix+key)); err == nil {
		return nil
	}
	return c.build(ctx, key, write)
}

// open returns nil when there is no such tree.
func (c cache) open(key string) (*os.File, error) {
	name := filepath.Join(c.dir, c.prefix+key)
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, cacheError("open "+name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	st, linked, err := lock(f, unix.LOCK_SH)
	if err != nil || !linked {
		f.Close()
		return nil, err
	}
	if time.Since(time.Unix(st.Mtim.Unix())) > touchAfter {
		c.touch(name)
	}
	return f, nil
}

// touch notes that a tree is used. Only the pruner reads it: a failure costs a
// rebuild some day.
func (c cache) touch(name string) { _ = os.Chtimes(name, time.Time{}, time.Now()) }

// lock locks the tree f and says whether it still has its name: the pruner
// renames what it removes.
func lock(f *os.File, how int) (st unix.Stat_t, linked bool, err error) {
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return st, false, nil
	}
	if err != nil {
		return st, false, cacheError("lock "+f.Name(), err)
	}
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return st, false, cacheError("look at "+f.Name(), err)
	}
	var named unix.Stat_t
	if err := unix.Lstat(f.Name(), &named); err != nil || named.Ino != st.Ino || named.Dev != st.Dev {
		return st, false, nil
	}
	return st, true, nil
}

// build makes the tree called key; that another builder was faster is fine.
func (c cache) build(ctx context.Context, key string, write func(ctx context.Context, dir string) error) error {
	c.prune(key)
	held, err := c.temp()
	if err != nil {
		return err
	}
	defer held.Close()
	temp := held.Name()
	defer os.RemoveAll(temp) // renamed away when all went well
	if err := write(ctx, temp); err != nil {
		var known *sandbox.Error
		if errors.As(err, &known) || ctx.Err() != nil {
			return err
		}
		return cacheError("build root filesystem", err)
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return cacheError("build root filesystem", err)
	}
	err = os.Rename(temp, filepath.Join(c.dir, c.prefix+key))
	if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTEMPTY) {
		return cacheError("build root filesystem", err)
	}
	return nil
}

// temp makes a temporary tree, which is held by a shared lock: one that is not held is a
// dead builder's, or is taken for that before it is held, and another is made.
func (c cache) temp() (*os.File, error) {
	const op = "build root filesystem"
	for range openTries {
		name, err := os.MkdirTemp(c.dir, tempPrefix)
		if err != nil {
			return nil, cacheError(op, err)
		}
		if c.onTemp != nil {
			c.onTemp()
		}
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, cacheError(op, err)
		}
		_, linked, err := lock(f, unix.LOCK_SH)
		if linked {
			return f, nil
		}
		f.Close()
		if err != nil {
			os.Remove(name)
			return nil, err
		}
	}
	return nil, sandbox.Errorf(sandbox.ErrUnavailable, op, "what it is built in vanished %d times", openTries)
}

// prune removes the trees used longest ago, except those in use and except
// key, and what dead builders left. It is a courtesy: what it cannot remove
// now it removes another time.
func (c cache) prune(key string) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	type tree struct {
		name string
		used time.Time
		size int64
	}
	var trees []tree
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		switch name := e.Name(); {
		case stale(e):
			c.removeStale(name)
		case strings.HasPrefix(name, c.prefix) && name != c.prefix+key && c.keep > 0:
			trees = append(trees, tree{name, info.ModTime(), c.weigh(name)})
		}
	}
	slices.SortFunc(trees, func(a, b tree) int { return b.used.Compare(a.used) })
	all := int64(0)
	for i, t := range trees {
		if all += t.size; i >= c.keep-1 || c.size > 0 && all > c.size {
			c.remove(t.name, nil)
		}
	}
}

// sweep removes what dead builders left, of which one may be as large as a packed root and
// no other build come for long.
func (c cache) sweep() {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if stale(e) {
			c.removeStale(e.Name())
		}
	}
}

// stale says whether a name may be what a dead builder left.
func stale(e os.DirEntry) bool {
	if !strings.HasPrefix(e.Name(), tempPrefix) {
		return false
	}
	info, err := e.Info()
	return err == nil && (e.IsDir() || time.Since(info.ModTime()) > staleTemp)
}

// weigh is what a tree takes, where that is bounded.
func (c cache) weigh(name string) int64 {
	if c.size == 0 {
		return 0
	}
	info, err := os.Lstat(filepath.Join(c.dir, name, c.weighs))
	if err != nil {
		return 0 // it was removed meanwhile
	}
	return info.Size()
}

// removeStale removes what a dead builder left.
func (c cache) removeStale(name string) {
	f, err := os.Open(filepath.Join(c.dir, name))
	if err != nil {
		return
	}
	defer f.Close()
	if _, linked, err := lock(f, unix.LOCK_EX|unix.LOCK_NB); err == nil && linked {
		os.RemoveAll(f.Name())
	}
}

// take holds a tree that is not used, exclusively, until done; nil where it is used, or
// there is none. A look whether it is used takes it, too, so looks come one after the
// other: each would be a user in another's eyes.
func (c cache) take(name string) (f *os.File, done func()) {
	next, err := c.alone(context.Background(), "take "+name)
	if err != nil {
		next = func() {}
	}
	f, err = os.Open(filepath.Join(c.dir, name))
	if err != nil {
		return nil, next
	}
	if _, linked, err := lock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil || !linked {
		f.Close()
		return nil, next
	}
	return f, func() { f.Close(); next() }
}

// remove removes a tree unless it is used, and says whether it is gone. may, where there
// is one, is asked when no new use can begin any more. The tree is renamed under the
// lock, so that a process that opened it meanwhile finds its name gone.
func (c cache) remove(name string, may func() bool) bool {
	f, done := c.take(name)
	defer done()
	if f == nil {
		_, err := os.Lstat(filepath.Join(c.dir, name))
		return errors.Is(err, os.ErrNotExist)
	}
	if may != nil && !may() {
		return false
	}
	gone, err := c.temp()
	if err != nil {
		return false
	}
	defer gone.Close()
	if os.Rename(f.Name(), filepath.Join(gone.Name(), name)) != nil {
		os.RemoveAll(gone.Name())
		return false
	}
	return os.RemoveAll(gone.Name()) == nil
}

// cacheError is a failure of the cache directory.
func cacheError(op string, err error) error {
	hint := "check that the state directory is writable"
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		hint = "free some space: the disk of the state directory is full"
	case errors.Is(err, unix.ENOENT):
		hint = "make the directory above it first"
	}
	return &sandbox.Error{Op: op, Kind: sandbox.ErrUnavailable, Problem: "the cache directory cannot be used", Hint: hint, Cause: err}
}
