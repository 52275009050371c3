// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/sandbox"
)

// gVisor's file server binds every host file at its place in a tree of real
// directories before the kernel inside starts, also where the kernel then
// mounts a scratch directory in between. So each mount needs a real
// mountpoint: in the root's tree, or in the mount it lies in. The root's tree
// is shared and read-only; where it lacks one, this sandbox gets a tree of its
// own, made of empty directories and of binds of the parts that have files.

// makeMountpoints sees to it that every bound target exists.
func (b *box) makeMountpoints() error {
	var missing []sandbox.Mount
	for i, m := range b.plan.files[1:] {
		owner := b.plan.files[0]
		for _, o := range b.plan.files[1 : i+1] {
			if sandbox.Within(m.Target, o.Target) && len(o.Target) >= len(owner.Target) {
				owner = o
			}
		}
		if owner.Target == "/" && b.plan.erofs {
			continue // the gofer's own tree is empty; the image has the mountpoint
		}
		switch err := mounts.FindPoint(owner.Source, owner.Target, m.Target, m.Dir); {
		case err == nil:
		case owner.Target == "/" && errors.Is(err, fs.ErrNotExist):
			missing = append(missing, m)
		default:
			return &sandbox.Error{
				Op: "mount " + m.Name, Kind: sandbox.ErrInvalid, Cause: err,
				Problem: fmt.Sprintf("it cannot be placed at %s inside the mount %s", m.Target, owner.Name),
				Hint:    "make the mountpoint there first, or choose another target",
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return b.ownRoot(missing)
}

// ownRoot gives the sandbox a root tree of its own with the missing targets.
func (b *box) ownRoot(missing []sandbox.Mount) error {
	dir := filepath.Join(b.spec.StateDir, "root")
	t := &rootTree{dir: dir, missing: missing}
	if err := t.make(b.plan.files[0].Source); err != nil {
		t.close()
		return &sandbox.Error{Op: "prepare sandbox", Kind: sandbox.ErrUnavailable, Problem: "its root tree cannot be made", Cause: err}
	}
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		t.close()
		return err
	}
	t.opened = append(t.opened, root)
	b.opened = append(b.opened, t.opened...)
	b.plan.replaceRoot(root, t.binds)
	return nil
}

// rootTree is a root directory under construction.
type rootTree struct {
	dir     string
	missing []sandbox.Mount
	binds   []sandbox.Mount
	opened  []*os.File
}

func (t *rootTree) close() {
	for _, f := range t.opened {
		f.Close()
	}
}

func (t *rootTree) make(src *os.File) error {
	if err := makeDir(t.dir); err != nil {
		return err
	}
	if err := t.copyDir(src, "/"); err != nil {
		return err
	}
	for _, m := range t.missing {
		if err := t.mountpoint(m); err != nil {
			return err
		}
	}
	return nil
}

// mountpoint makes an empty directory or file for m, and what leads to it.
func (t *rootTree) mountpoint(m sandbox.Mount) error {
	if m.Dir {
		return t.makeDirs(m.Target)
	}
	if err := t.makeDirs(path.Dir(m.Target)); err != nil {
		return err
	}
	return writeFile(filepath.Join(t.dir, m.Target), nil, 0o644)
}

// makeDirs makes a directory of the tree, with those above it.
func (t *rootTree) makeDirs(rel string) error {
	at := t.dir
	for part := range strings.SplitSeq(rel, "/") {
		at = filepath.Join(at, part)
		if err := makeDir(at); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.MkdirAll(at, 0o755) // which says whether it is a directory
}

// makeDir and writeFile make what the programs inside see with the mode that it is to
// have, whatever the umask.
func makeDir(name string) error {
	if err := os.Mkdir(name, 0o755); err != nil {
		return err
	}
	return os.Chmod(name, 0o755)
}

func writeFile(name string, data []byte, mode fs.FileMode) error {
	if err := os.WriteFile(name, data, mode); err != nil {
		return err
	}
	return os.Chmod(name, mode)
}

// copyDir repeats the directory src, which is shown at rel, below t.dir.
func (t *rootTree) copyDir(src *os.File, rel string) error {
	names, err := readNames(src)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := t.copyEntry(src, path.Join(rel, name), name); err != nil {
			return fmt.Errorf("%s: %w", path.Join(rel, name), err)
		}
	}
	return nil
}

// maxRootFile bounds what is copied of a root's own files: there are few, and
// small, in the directories that lead to a mount.
const maxRootFile = 1 << 20

func (t *rootTree) copyEntry(dir *os.File, rel, name string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), rel)
	dst := filepath.Join(t.dir, rel)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		defer f.Close()
		return copyLeaf(dir, name, dst, &st)
	}
	if err := makeDir(dst); err != nil {
		f.Close()
		return err
	}
	names, err := readNames(f)
	if err != nil {
		f.Close()
		return err
	}
	switch {
	case t.leadsToMissing(rel):
		defer f.Close()
		return t.copyDir(f, rel)
	case len(names) == 0:
		return f.Close()
	default:
		t.opened = append(t.opened, f)
		t.binds = append(t.binds, sandbox.Mount{Source: f, Name: rel, Target: rel, Dir: true})
		return nil
	}
}

func (t *rootTree) leadsToMissing(rel string) bool {
	for _, m := range t.missing {
		if sandbox.Within(m.Target, rel) {
			return true
		}
	}
	return false
}

// copyLeaf repeats a link or a small file.
func copyLeaf(dir *os.File, name, dst string, st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
		if err != nil {
			return err
		}
		return os.Symlink(string(buf[:n]), dst)
	case unix.S_IFREG:
		if st.Size > maxRootFile {
			return fmt.Errorf("it is %d bytes long, too much to copy for a mount beside it", st.Size)
		}
		fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		src := os.NewFile(uintptr(fd), name)
		defer src.Close()
		data, err := io.ReadAll(io.LimitReader(src, maxRootFile))
		if err != nil {
			return err
		}
		return writeFile(dst, data, 0o755&fs.FileMode(st.Mode)) // no wider than it was
	}
	return nil // devices, sockets and pipes are not for sandboxes
}

// readNames lists the directory behind an O_PATH handle.
func readNames(dir *os.File) ([]string, error) {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir.Name())
	defer f.Close()
	return f.Readdirnames(-1)
}
