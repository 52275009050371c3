// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// planRoot decides what the container's root is made of.
//
// A container image's tree becomes an image of the engine's, once per digest.
// Any other root stays where it is: its parts that hold files are bound, and
// only what engines cannot bind, the directories and links at the top, is in
// an image of the engine's, which is a few kilobytes and the agent. There are
// few such images, because what is mounted somewhere is left out of them: the
// runtime makes mountpoints in the container's own layer.
func (p *plan) planRoot(f *facts) error {
	root := p.spec.Root
	if root.Dir == nil {
		return sandbox.Errorf(sandbox.ErrInvalid, "root filesystem", "it was not opened")
	}
	program, err := newAgentFile()
	if err != nil {
		return err
	}
	p.opened = append(p.opened, program.file)
	p.root = &rootImage{agent: program}
	if root.Image != nil {
		if !validDigest().MatchString(root.Image.Digest) {
			return sandbox.Errorf(sandbox.ErrInvalid, "root filesystem", "%q is no image's digest", root.Image.Digest)
		}
		p.root.tree, p.root.digest = root.Dir, root.Image.Digest
		if p.here { // the image's own instead of the engine's, which tell of its host
			if err := p.bindParts(filesIn(root.Dir, podmanFiles, p.targets()), f); err != nil {
				return err
			}
		}
	} else {
		s := scan{top: fdPath(root.Dir), targets: p.targets()}
		if err := s.run(); err != nil {
			return &sandbox.Error{Op: "root filesystem", Kind: sandbox.ErrUnavailable, Problem: "it cannot be read", Cause: err}
		}
		p.root.entries = s.entries
		if err := p.bindParts(s.bound, f); err != nil {
			return err
		}
	}
	p.request.Image = p.root.name()
	return nil
}

// targets are all paths on which something is mounted.
func (p *plan) targets() map[string]bool {
	t := map[string]bool{"/proc": true, "/sys": true, "/dev": true}
	for _, m := range slices.Concat(p.spec.Root.Binds, p.spec.Mounts) {
		t[m.Target] = true
	}
	for _, s := range p.spec.Scratch {
		t[s.Target] = true
	}
	for _, m := range p.spec.Masks {
		t[m.Target] = true
	}
	return t
}

// engineFiles are what engines mount in every container.
var engineFiles = []string{"hostname", "hosts", "resolv.conf"}

// podmanFiles are what Podman mounts besides, unless something else is mounted
// there by that very name.
var podmanFiles = []string{"hostname", "hosts", "resolv.conf", "passwd", "group"}

// bindParts binds parts of the root's directory.
func (p *plan) bindParts(parts []part, f *facts) error {
	for i := 0; i < len(parts); i++ {
		part := parts[i]
		h, err := openPath(filepath.Join(fdPath(p.spec.Root.Dir), part.path))
		if err != nil {
			return &sandbox.Error{Op: "root filesystem", Kind: sandbox.ErrUnavailable, Problem: "its " + part.path + " cannot be opened", Cause: err}
		}
		p.opened = append(p.opened, h)
		if part.path == "/etc" {
			for _, name := range engineFiles {
				info, err := os.Lstat(filepath.Join(fdPath(h), name))
				if err != nil || !info.Mode().IsRegular() {
					dir := p.spec.Root.Dir.Name()
					return &sandbox.Error{Op: "root filesystem " + dir, Kind: sandbox.ErrInvalid, Problem: "it has no file /etc/" + name + ", on which every engine mounts its own, and it is not changed",
						Hint: "touch " + filepath.Join(dir, "etc", name), Cause: err}
				}
			}
			if f.podman {
				parts = append(parts, filesIn(p.spec.Root.Dir, podmanFiles, p.targets())...)
			}
		}
		p.bind(sandbox.Mount{Source: h, Name: path.Join("the root's ", part.path), Target: part.path, Dir: part.dir})
	}
	return nil
}

// filesIn are those of names that are files in a root's /etc, over which nothing else is
// mounted.
func filesIn(root *os.File, names []string, over map[string]bool) (files []part) {
	for _, name := range names {
		if info, err := os.Lstat(filepath.Join(fdPath(root), "etc", name)); err == nil && info.Mode().IsRegular() && !over[path.Join("/etc", name)] {
			files = append(files, part{path.Join("/etc", name), false})
		}
	}
	return files
}

// entry is a directory or a link of the root that goes into the engine's image.
type entry struct {
	path   string // absolute
	link   string // where it leads; empty for a directory
	sticky bool   // 1777
}

// part is what of the root is bound.
type part struct {
	path string
	dir  bool
}

// scan sorts a root's top into what is bound and what is repeated.
type scan struct {
	top     string
	targets map[string]bool
	seen    int

	entries []entry
	bound   []part
}

// maxScan bounds how many entries of directories without files are looked at.
const maxScan = 2000

// usual are directories that stay in the image though something may be mounted
// on them, so that most sandboxes share one image.
var usual = []string{
	"/app", "/code", "/data", "/etc", "/home", "/input", "/media", "/mnt", "/opt", "/output", "/project", "/repo", "/root",
	"/run", "/src", "/srv", "/tmp", "/usr", "/var", "/var/cache", "/work", "/workspace",
}

func (s *scan) run() error {
	names, err := readDir(s.top)
	if err != nil {
		return err
	}
	for _, e := range names {
		p := "/" + e.Name()
		switch {
		case p == agentDir:
		case e.Type()&fs.ModeSymlink != 0:
			if err := s.link(p); err != nil {
				return err
			}
		case s.targets[p]:
			s.dir(p, e)
		case e.IsDir():
			mark := len(s.entries)
			if s.empty(p, e) {
				continue
			}
			s.entries = s.entries[:mark]
			s.bound = append(s.bound, part{p, true})
		case e.Type().IsRegular():
			s.bound = append(s.bound, part{p, false})
		}
	}
	return nil
}

// empty repeats a directory that holds nothing but directories and links; it
// is false where there is more to it.
func (s *scan) empty(p string, e fs.DirEntry) bool {
	names, err := readDir(filepath.Join(s.top, p))
	if err != nil {
		return false
	}
	mark := len(s.entries)
	s.dir(p, e)
	mine := len(s.entries)
	leads := false
	for _, c := range names {
		if s.seen++; s.seen > maxScan {
			return false
		}
		q := path.Join(p, c.Name())
		switch {
		case s.targets[q]:
			leads = true
		case c.IsDir():
			before := len(s.entries)
			if !s.empty(q, c) {
				return false
			}
			leads = leads || len(s.entries) == before
		case c.Type()&fs.ModeSymlink != 0:
			if s.link(q) != nil {
				return false
			}
		default:
			return false
		}
	}
	// Only on the way to mountpoints: the runtime makes it with them.
	if leads && len(s.entries) == mine && !slices.Contains(usual, p) {
		s.entries = s.entries[:mark]
	}
	return true
}

// dir repeats a directory, unless it is a mountpoint that not every root has.
func (s *scan) dir(p string, e fs.DirEntry) {
	if !e.IsDir() || s.targets[p] && !slices.Contains(usual, p) {
		return
	}
	info, err := e.Info()
	s.entries = append(s.entries, entry{path: p, sticky: err == nil && info.Mode()&fs.ModeSticky != 0})
}

func (s *scan) link(p string) error {
	to, err := os.Readlink(filepath.Join(s.top, p))
	if err != nil {
		return err
	}
	s.entries = append(s.entries, entry{path: p, link: to})
	return nil
}

// readDir lists a directory by the path of a handle.
func readDir(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir + "/.")
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil // no user inside could look into it either
	}
	return entries, err
}
