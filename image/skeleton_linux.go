// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// skeleton is everything that is in a tree of the cache.
type skeleton struct {
	host  *hostTree
	opts  *HostOptions
	extra []Target // mountpoints beyond the usual ones
	shell string
	// programs are links in sandbox.ProgramDir, which is made when they are not
	// nil.
	programs map[string]string
	seen     []string // directories that are shown inside: links may lead there
}

// write makes the tree in dir, which is empty and ours alone. The copy of /etc
// is a tree of its own in the cache, hard-linked: making a link costs a
// fortieth of making a file (ext4), and most trees differ in a target only.
func (s *skeleton) write(ctx context.Context, c cache, etc, dir string) error {
	base, err := c.tree(ctx, etc, s.copyEtc)
	if err != nil {
		return err
	}
	defer base.Close()
	if err := linkTree(base.Name(), dir); err != nil {
		return err
	}
	c.touch(base.Name())
	dirs := append(slices.Clone(layout), s.opts.User.Home)
	for _, d := range vacant {
		if !slices.Contains(s.extra, Target{Path: d}) {
			dirs = append(dirs, d)
		}
	}
	for _, b := range s.host.binds {
		dirs = append(dirs, b.Target)
	}
	for _, t := range s.extra {
		if t.Dir {
			dirs = append(dirs, t.Path)
		}
	}
	for _, d := range dirs {
		if err := makeDirs(dir, d); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(dir, "tmp"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	for _, links := range []map[string]string{layoutLinks, s.host.links} {
		for at, to := range links {
			if err := os.Symlink(to, filepath.Join(dir, at)); err != nil {
				return err
			}
		}
	}
	if s.programs != nil {
		if err := makeDirs(dir, sandbox.ProgramDir); err != nil {
			return err
		}
		for name, to := range s.programs {
			if err := os.Symlink(to, filepath.Join(dir, sandbox.ProgramDir, name)); err != nil {
				return err
			}
		}
	}
	for at, text := range s.opts.files(s.shell) {
		if err := writeFile(filepath.Join(dir, at), strings.NewReader(text)); err != nil {
			return err
		}
	}
	for _, t := range s.extra {
		if t.Dir {
			continue
		}
		if err := makeDirs(dir, path.Dir(t.Path)); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, t.Path), strings.NewReader("")); err != nil {
			return err
		}
	}
	return nil
}

// copyEtc copies what was found of the host's /etc. What vanished since, as it
// does while packages are installed, is left out; the digest of the next run
// differs then.
func (s *skeleton) copyEtc(ctx context.Context, dir string) error {
	if err := s.host.complete(); err != nil {
		return err
	}
	if err := makeDirs(dir, "/etc"); err != nil {
		return err
	}
	for _, f := range s.host.etc {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := filepath.Join(dir, f.path)
		var err error
		switch f.kind {
		case kindDir:
			err = makeDirs(dir, f.path)
		case kindLink:
			err = s.copyLink(f.path, at)
		case kindFile:
			err = s.copyFile(f.path, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// linkTree makes the directories of from in to, and links to all else.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(p string, e fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(p, from)
		switch {
		case err != nil:
			return err
		case rel == "":
			return nil
		case e.IsDir():
			return makeDirs(to, rel)
		}
		return os.Link(p, filepath.Join(to, rel))
	})
}

// copyLink copies a link when it leads to something that is shown inside.
func (s *skeleton) copyLink(from, to string) error {
	parent, err := s.open(path.Dir(from), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return skipMissing("open "+path.Dir(from), err)
	}
	defer parent.Close()
	target, err := readlinkAt(int(parent.Fd()), path.Base(from))
	if errors.Is(err, unix.EINVAL) {
		return nil // no link any more
	}
	if err != nil {
		return skipMissing("read the link "+from, err)
	}
	if !s.shows(resolveLink(from, target)) {
		return nil
	}
	return os.Symlink(target, to)
}

// shows says whether p is one of the paths that the sandbox sees.
func (s *skeleton) shows(p string) bool {
	for _, d := range hostDirs {
		if within(p, "/"+d) {
			return true
		}
	}
	for _, d := range s.seen {
		if within(p, d) {
			return true
		}
	}
	return slices.ContainsFunc(s.host.etc, func(f found) bool { return f.path == p })
}

// copyFile copies one world-readable regular file of at most maxFile bytes.
func (s *skeleton) copyFile(from, to string) error {
	src, err := s.open(from, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW)
	if err != nil {
		return skipMissing("open "+from, err)
	}
	defer src.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return hostError("look at "+from, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o004 == 0 || st.Size > maxFile {
		return nil // it is not any more what was surveyed
	}
	return writeFile(to, io.LimitReader(src, maxFile))
}

// open opens a path of the host's /etc without following any link.
func (s *skeleton) open(p string, flags uint64) (*os.File, error) {
	etc, err := unix.Openat2(s.host.root, "etc", &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(etc)
	rel := "." + strings.TrimPrefix(p, "/etc")
	fd, err := unix.Openat2(etc, rel, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), p), nil
}

// makeDirs makes p and what is above it in dir, mode 0755 whatever the umask.
func makeDirs(dir, p string) error {
	at := dir
	for _, name := range strings.Split(strings.Trim(p, "/"), "/") {
		at = filepath.Join(at, name)
		err := os.Mkdir(at, 0o755)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err == nil {
			err = os.Chmod(at, 0o755)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeFile makes a new file, mode 0644 whatever the umask.
func writeFile(at string, r io.Reader) error {
	f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err = io.Copy(f, r); err == nil {
		err = f.Chmod(0o644)
	}
	return errors.Join(err, f.Close())
}
