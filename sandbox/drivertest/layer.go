// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// change is what a layer says of one name.
type change struct {
	kind    byte // of tar
	mode    os.FileMode
	content string // of a file, or where a link leads
	opaque  bool
	removed bool

	uid, gid int // where a level tells owners
	mtime    int64
}

// readLayer reads a layer to its end.
func readLayer(r io.Reader) (map[string]change, error) {
	layer := map[string]change{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return layer, nil
		}
		if err != nil {
			return layer, err
		}
		c := change{kind: h.Typeflag, mode: os.FileMode(h.Mode & 0o777), content: h.Linkname, uid: h.Uid, gid: h.Gid}
		if !h.ModTime.IsZero() {
			c.mtime = h.ModTime.Unix()
		}
		switch h.Typeflag {
		case tar.TypeReg:
			if c.content, err = readContent(in, h.Size); err != nil {
				return layer, err
			}
		case tar.TypeLink:
			c = layer[path.Clean(h.Linkname)]
		case tar.TypeChar:
			c.removed = h.Devmajor == 0 && h.Devminor == 0
		case tar.TypeDir:
			c.opaque = h.PAXRecords["SCHILY.xattr.trusted.overlay.opaque"] == "y" || h.PAXRecords["SCHILY.xattr.user.overlay.opaque"] == "y"
		}
		name := path.Clean(h.Name)
		if _, ok := layer[name]; ok || path.IsAbs(name) || strings.HasPrefix(name, "..") {
			return layer, fmt.Errorf("the layer says %q", h.Name)
		}
		layer[name] = c
	}
}

// readContent is what a file has, or the digest of much.
func readContent(r io.Reader, size int64) (string, error) {
	if size > mib {
		digest := sha256.New()
		_, err := io.Copy(digest, r)
		return fmt.Sprintf("%x", digest.Sum(nil)), err
	}
	b, err := io.ReadAll(r)
	return string(b), err
}

// over is a tree of the host with a layer over it.
func over(t *testing.T, dir string, layer map[string]change) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, p)
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		c := change{kind: tar.TypeDir, mode: info.Mode().Perm()}
		switch {
		case info.Mode().IsRegular():
			c.kind, c.content = tar.TypeReg, read(t, p)
		case info.Mode()&os.ModeSymlink != 0:
			c.kind = tar.TypeSymlink
			c.content, err = os.Readlink(p)
		}
		tree[name] = c.String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range layer {
		if c.removed || c.opaque || c.kind != tar.TypeDir {
			maps.DeleteFunc(tree, func(n, _ string) bool { return n == name || strings.HasPrefix(n, name+"/") })
		}
	}
	for name, c := range layer {
		if !c.removed && name != "." {
			tree[name] = c.String()
		}
	}
	return tree
}

// String is as changeAll says it.
func (c change) String() string {
	switch c.kind {
	case tar.TypeDir:
		return fmt.Sprintf("directory %o", c.mode)
	case tar.TypeSymlink:
		return "link " + c.content
	}
	return fmt.Sprintf("file %o %s", c.mode, c.content)
}
