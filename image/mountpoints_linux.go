// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// alwaysThere are mountpoints that every image was given (see dresser).
var alwaysThere = []string{"/tmp", "/home/user", "/workspace", "/root", "/dev/shm"}

// missingTargets are the targets that an image has no mountpoint for. One that
// cannot be made is refused by name.
func missingTargets(f *os.File, targets []Target) ([]Target, error) {
	var check []Target
	for _, t := range targets {
		if err := checkInside("image", "target", t.Path); err != nil {
			return nil, err
		}
		if err := reserved(t.Path); err != nil {
			return nil, err
		}
		covered := slices.ContainsFunc(targets, func(u Target) bool { return u.Dir && u.Path != t.Path && within(t.Path, u.Path) })
		if !covered && !(t.Dir && slices.Contains(alwaysThere, t.Path)) {
			check = append(check, t)
		}
	}
	if len(check) == 0 {
		return nil, nil // the usual case, without a look
	}
	st, err := f.Stat()
	if err != nil {
		return nil, cacheError("read image", err)
	}
	var missing []Target
	for _, t := range check {
		n, err := fstree.FindEROFS(f, st.Size(), t.Path)
		switch {
		case errors.Is(err, fstree.ErrDamaged):
			return nil, damagedImage(err)
		case errors.Is(err, fstree.ErrNotFound):
			missing = append(missing, t)
		case err != nil || n.Kind == fstree.Link:
			return nil, badTarget(t, "is reached through a file or symbolic link of the image, on which nothing is mounted", "choose another target")
		case (n.Kind == fstree.Dir) != t.Dir:
			return nil, badTarget(t, "is not the "+what(t)+" that is to be mounted on it", "choose another target")
		}
	}
	slices.SortFunc(missing, func(a, b Target) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(missing), nil
}

func readTree(f *os.File) (*fstree.Node, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, cacheError("read image", err)
	}
	root, err := fstree.ReadEROFS(f, info.Size())
	if err != nil {
		return nil, damagedImage(err)
	}
	return root, nil
}

func targetsHash(list []Target) string { return shortHash(fmt.Sprint(list)) }

// addTargets writes a copy of the image f with further mountpoints to dir.
func addTargets(f *os.File, dir, digest string, targets []Target) error {
	root, err := readTree(f)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if err := addTarget(root, t); err != nil {
			return err
		}
	}
	end, err := fstree.EROFSDataEnd(f)
	if err != nil {
		return damagedImage(err)
	}
	out, err := os.OpenFile(filepath.Join(dir, erofsName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := copyRange(out, f, end); err != nil {
		return err
	}
	var uuid [16]byte
	copy(uuid[:], shortHash(digest+targetsHash(targets)))
	size, err := fstree.WriteEROFS(out, root, end, uuid)
	if err != nil {
		return err
	}
	if err := out.Truncate(size); err != nil {
		return err
	}
	return out.Chmod(0o400)
}

// addTarget makes a mountpoint, and what leads to it, in a tree.
func addTarget(root *fstree.Node, t Target) error {
	at := root
	for part := range strings.SplitSeq(strings.Trim(path.Dir(t.Path), "/"), "/") {
		if part == "" {
			continue
		}
		next := at.Children[part]
		if next == nil {
			next = fstree.NewDir()
			at.Children[part] = next
		}
		if next.Kind != fstree.Dir {
			return badTarget(t, "passes through something that is no directory in the image", "choose another target")
		}
		at = next
	}
	n := &fstree.Node{Kind: fstree.File, Mode: 0o644}
	if t.Dir {
		n = fstree.NewDir()
	}
	at.Children[path.Base(t.Path)] = n
	return nil
}

// copyRange copies the first n bytes of a file, sharing blocks where the file
// system can.
func copyRange(to, from *os.File, n int64) error {
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return nil
	}
	_, err := io.Copy(to, io.NewSectionReader(from, 0, n))
	if err != nil {
		return &sandbox.Error{Op: "prepare image", Kind: sandbox.ErrUnavailable, Problem: "it cannot be copied for further mountpoints", Hint: "free some disk space", Cause: err}
	}
	return nil
}
