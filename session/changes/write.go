// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"archive/tar"
	"io"
	"os"
	"slices"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// MadeOf says whether a directory is the workspace that the set was made of.
func (set *Set) MadeOf(root *os.File) bool {
	dev, inode, err := identity(root)
	return err == nil && (Root{dev, inode}) == set.Root
}

// RootOf tells the directory f from others.
func RootOf(f *os.File) (Root, error) {
	dev, inode, err := identity(f)
	return Root{dev, inode}, err
}

// WriteTar writes the set as a stream that puts it in place elsewhere, in the form that the
// agent inside takes: what is held back, too. Paths for which skip says so are left out.
func (c *Contents) WriteTar(w io.Writer, skip func(path string) bool) error {
	tw := tar.NewWriter(w)
	for _, e := range slices.Concat(c.Set.Git, c.Set.Entries) {
		if skip(e.Path) {
			continue
		}
		if err := c.writeEntry(tw, &e); err != nil {
			return err
		}
	}
	return tw.Close()
}

func (c *Contents) writeEntry(tw *tar.Writer, e *Entry) error {
	hdr := &tar.Header{Name: e.Path, Mode: int64(e.Mode & 0o777), Format: tar.FormatPAX}
	switch {
	case e.Op == Remove:
		hdr.Typeflag = tar.TypeChar
	case e.Type == Dir:
		hdr.Typeflag = tar.TypeDir
	case e.Type == Link:
		hdr.Typeflag, hdr.Linkname = tar.TypeSymlink, e.Link
	case e.hasContent():
		hdr.Typeflag, hdr.Size = tar.TypeReg, e.Size
	default:
		hdr.Typeflag, hdr.PAXRecords = tar.TypeReg, map[string]string{wire.PlaceMode: "1"}
	}
	if err := tw.WriteHeader(hdr); err != nil {
		return &sandbox.Error{Op: "read " + Shown(e.Path), Kind: sandbox.ErrUnsupported, Problem: "it cannot be put in place elsewhere", Hint: "drop the set and run again", Cause: err}
	}
	if !e.hasContent() {
		return nil
	}
	f, err := c.Open(e)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(tw, f)
	return err
}

// OpenRoot opens the workspace on the host that the set was made of, and no other.
func (set *Set) OpenRoot() (*os.File, error) { return openRoot(set, &ApplyOptions{}) }

// Ignores says of paths in a workspace whether its .gitignore files ignore them.
func Ignores(root *os.File) func(path string, dir bool) bool {
	return newIgnores(&host{root: root}).match
}
