// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/rand"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

// links brings those links out that lead to what came out: nothing that is written later
// or read on the host then leads elsewhere. They are made when all files have their names,
// so no file goes through one. A link may lead to a link, so it goes on until none is left
// that can be made.
func (c *collector) links(offered []guest.Link) {
	there := map[string]bool{}
	for offered := range c.named {
		for name := strings.TrimPrefix(offered, c.prefix); name != "." && !there[name]; name = path.Dir(name) {
			there[name] = true
		}
	}
	for made := true; made; {
		made = false
		var left []guest.Link
		for _, l := range offered {
			name := strings.TrimPrefix(l.Path, c.prefix)
			if !there[destination(name, l.Target)] {
				left = append(left, l)
				continue
			}
			made = true
			there[name] = c.link(l, name)
		}
		offered = left
	}
	for _, l := range offered {
		if name := strings.TrimPrefix(l.Path, c.prefix); c.hidden || !isHidden(name) {
			c.fails(name, c.refused(name, "it is a link to "+sandbox.Quoted(sandbox.Clip(l.Target, 256))+", which did not come out", "collect what it leads to, with it"))
		}
	}
}

// destination is the path that a link leads to on the host, by names alone; empty where it
// is absolute or names are not enough.
func destination(name, target string) string {
	if path.IsAbs(target) || path.Clean(target) != target {
		return ""
	}
	return path.Join(path.Dir(name), target)
}

// link makes one link, which leads to what came out.
func (c *collector) link(l guest.Link, name string) (made bool) {
	if !c.hidden && isHidden(name) {
		return false
	}
	err := c.mayRelease(name)
	if err == nil {
		err = c.makeLink(l, name)
	}
	if err != nil {
		c.fails(name, err)
		return false
	}
	c.res.Files = append(c.res.Files, sandbox.File{Path: path.Join(c.from, l.Path), Link: l.Target, SavedAs: filepath.Join(c.wish.Dest, filepath.FromSlash(name))})
	return true
}

func (c *collector) makeLink(l guest.Link, name string) error {
	dir, err := c.directory(path.Dir(name))
	if err != nil {
		return c.failed("a directory for "+sandbox.Quoted(name)+" cannot be made", err)
	}
	defer dir.Close()
	base := path.Base(name)
	replace, err := c.replaces(dir, base, l.Path)
	if err != nil {
		return err
	}
	switch err = dir.Symlink(l.Target, base); {
	case errors.Is(err, os.ErrExist) && !replace:
		if to, err := dir.Readlink(base); err == nil && to == l.Target {
			return nil // it is as it should be
		}
		return c.exists(dir, name)
	case errors.Is(err, os.ErrExist):
		err = replaceByLink(dir, l.Target, base)
	}
	if err != nil {
		return c.unwritten(name, err)
	}
	c.takes(dir, base, l.Path)
	return nil
}

// replaceByLink puts a link in the place of a file, which is the old one or the link at
// any moment. The name that it has meanwhile is one that files.Sweep knows.
func replaceByLink(dir *os.Root, target, base string) error {
	temp := ".caisson-" + rand.Text()
	if err := dir.Symlink(target, temp); err != nil {
		return err
	}
	if err := dir.Rename(temp, base); err != nil {
		return errors.Join(err, dir.Remove(temp))
	}
	return nil
}
