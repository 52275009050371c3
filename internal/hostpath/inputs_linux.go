// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// elsewhere is why an input is refused that another mount of the host's shows in the tree.
const elsewhere = "it lies in it, by way of another mount"

// maxFollowed is how many symbolic links lead to one file at most: the kernel's number.
const maxFollowed = 40

// inputs looks after the files that were read for the run (ScanOptions.Inputs): code that
// may write to the tree must not change one, put another in its place, or rename a
// directory on the way to it.
type inputs struct {
	*scan
	tree   *object
	real   string // where the tree is now
	mounts mountTable
	linked map[id]string // files with several names → as they were named
	own    map[id]bool   // those of linked that are Own
	kept   map[string]bool
}

// keepInputs notes a Keep for each input that lies in the tree, and a Pin for each
// directory on its path. What cannot be kept that way is ErrDenied: a symbolic link on
// the path, a hard link, and a way into the tree through another mount.
func (s *scan) keepInputs() error {
	if len(s.o.Inputs) == 0 {
		return nil
	}
	i := &inputs{scan: s, linked: map[id]string{}, own: map[id]bool{}, kept: map[string]bool{}}
	var err error
	if i.mounts, err = readMounts(); err == nil {
		i.tree, err = lookup(int(s.root.File.Fd()), i.mounts)
	}
	if err == nil {
		i.real, err = realPath(int(s.root.File.Fd()))
	}
	if err != nil {
		return s.failed(".", err)
	}
	for _, in := range s.o.Inputs {
		if err := i.keep(in); err != nil {
			return err
		}
	}
	return i.otherLinks()
}

// keep looks after one input: what its path names now, and what was read, where that is
// another file by now.
func (i *inputs) keep(in Input) error {
	var now id
	if in.Path != "" {
		var err error
		if now, err = i.follow(in.Path, in.Path, in.Own); err != nil {
			return err
		}
		if _, several := i.linked[now]; several && in.Own {
			i.own[now] = true
		}
	}
	if in.File == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(in.File.Fd()), &st); err != nil {
		return i.failed(in.File.Name(), err)
	}
	read := id{st.Dev, st.Ino}
	if read == now || st.Nlink == 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil // what has no name cannot be reached
	}
	real, err := realPath(int(in.File.Fd()))
	if err == nil && !strings.HasSuffix(real, " (deleted)") {
		if now, err = i.follow(real, in.File.Name(), false); err != nil {
			return err
		}
	}
	if now != read { // it is looked for
		i.linked[read] = in.File.Name()
	}
	return nil
}

// follow walks to a file as the kernel does, and notes what in the tree leads there.
// name is the file as errors call it. What is nowhere is the zero id, and so is what own
// cannot reach outside of the tree.
func (i *inputs) follow(file, name string, own bool) (id, error) {
	cur, err := openPath(unix.AT_FDCWD, "/", 0)
	if err != nil {
		return id{}, i.failed(name, err)
	}
	defer func() { unix.Close(cur) }()
	rest, links := strings.Split(file, "/"), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		fd, st, err := openPart(cur, part)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			if _, in, err := i.within(cur, name); in || err != nil {
				return id{}, errors.Join(err, i.refused(name, "it is gone, and code could make another", "put it back"))
			}
			return id{}, nil
		}
		if err != nil {
			if _, in, werr := i.within(cur, name); own && !in && werr == nil {
				return id{}, nil // caisson cannot read it either
			}
			return id{}, i.failed(name, err)
		}
		kind := st.Mode & unix.S_IFMT
		last := !slices.ContainsFunc(rest, func(p string) bool { return p != "" && p != "." })
		if part != ".." {
			err = i.note(cur, fd, part, name, kind, last)
		}
		if err != nil {
			unix.Close(fd)
			return id{}, err
		}
		if kind == unix.S_IFLNK {
			to, err := readLink(fd)
			unix.Close(fd)
			if links++; err == nil && links > maxFollowed {
				err = unix.ELOOP
			}
			if own && errors.Is(err, unix.ELOOP) {
				return id{}, nil
			}
			if err != nil {
				return id{}, i.failed(name, err)
			}
			if strings.HasPrefix(to, "/") {
				root, err := openPath(unix.AT_FDCWD, "/", 0)
				if err != nil {
					return id{}, i.failed(name, err)
				}
				unix.Close(cur)
				cur = root
			}
			rest = append(strings.Split(to, "/"), rest...)
			continue
		}
		unix.Close(cur)
		cur = fd
		if last {
			is := id{st.Dev, st.Ino}
			if kind == unix.S_IFREG && st.Nlink > 1 {
				i.linked[is] = name
			}
			return is, nil
		}
	}
	return id{}, nil
}

// note looks at one step: part, which is fd, in the directory cur.
func (i *inputs) note(cur, fd int, part, name string, kind uint32, last bool) error {
	rel, in, err := i.within(cur, name)
	if err != nil {
		return err
	}
	if !in {
		if kind == unix.S_IFLNK || !last {
			return nil
		}
		// The file itself may be mounted here, and lie in the tree.
		o, err := lookup(fd, i.mounts)
		switch {
		case err != nil:
			return i.failed(name, err)
		case i.tree.id == o.id:
			return i.refused(name, "it is what would be mounted", "")
		case i.shows(o):
			return i.refused(name, elsewhere, "")
		}
		return nil
	}
	at := path.Join(rel, part)
	switch {
	case kind == unix.S_IFLNK:
		return i.refused(name, at+" is a symbolic link, which code could replace", "name the file itself")
	case last:
		i.kept[at] = true
		i.add(Match{Rel: at, Dir: kind == unix.S_IFDIR, Do: Keep, Why: "it was read for this run"})
	default:
		i.add(Match{Rel: at, Dir: true, Do: Pin, Why: "it is on the way to " + name + ", which was read for this run"})
	}
	return nil
}

// within says whether the directory fd is the tree or lies in it, and where.
func (i *inputs) within(fd int, name string) (rel string, in bool, err error) {
	o, err := lookup(fd, i.mounts)
	if err != nil {
		return "", false, i.failed(name, err)
	}
	if !i.tree.dir {
		return "", false, nil
	}
	if o.id != i.tree.id && !slices.Contains(o.above, i.tree.id) {
		if i.shows(o) {
			return "", false, i.refused(name, elsewhere, "")
		}
		return "", false, nil
	}
	real, err := realPath(fd)
	if err != nil {
		return "", false, i.failed(name, err)
	}
	other := i.refused(name, elsewhere, "")
	if !within(real, i.real) {
		return "", false, other
	}
	for _, m := range i.mounts.below(i.real) {
		if o.at.within(m.root) && !within(real, m.point) {
			return "", false, other
		}
	}
	if rel = strings.TrimPrefix(strings.TrimPrefix(real, i.real), "/"); rel == "" {
		return ".", true, nil
	}
	again, err := openPath(int(i.root.File.Fd()), rel, beneath)
	if err != nil {
		return "", false, i.failed(name, err)
	}
	defer unix.Close(again)
	var st unix.Stat_t
	if err := unix.Fstat(again, &st); err != nil {
		return "", false, i.failed(name, err)
	}
	if (id{st.Dev, st.Ino}) != o.id {
		return "", false, other
	}
	return rel, true, nil
}

// shows says whether the tree shows an object whose path does not lead through it.
func (i *inputs) shows(o *object) bool {
	if i.tree.contains(o) {
		return true
	}
	return i.tree.dir && slices.ContainsFunc(i.mounts.below(i.real), func(m mountEntry) bool { return o.at.within(m.root) })
}

// otherLinks refuses a tree that has another name of an input.
func (i *inputs) otherLinks() error {
	if name, ok := i.linked[i.tree.id]; ok {
		return i.refused(name, "it is what would be mounted", "")
	}
	if len(i.linked) == 0 || !i.tree.dir {
		return nil
	}
	seen := 0
	var walk func(fd int, rel string) error
	walk = func(fd int, rel string) error {
		f := dirFile(fd)
		defer f.Close()
		entries, err := readDir(f)
		if err != nil {
			return i.failed(rel, err)
		}
		if seen += len(entries); seen > i.o.maxEntries {
			return i.unguarded(rel, "it holds more files than can all be looked at, and a file that was read for this run has several names")
		}
		if err := i.ctx.Err(); err != nil {
			return err
		}
		for _, e := range entries {
			at := path.Join(rel, e.Name())
			var st unix.Stat_t
			if unix.Fstatat(int(f.Fd()), e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if name, ok := i.linked[id{st.Dev, st.Ino}]; ok && !i.kept[at] {
				if i.own[id{st.Dev, st.Ino}] {
					i.add(Match{Rel: at, Do: Keep, Why: "it is another name of " + name})
					continue
				}
				return i.refused(name, at+" is another name of it", "make it a file of its own: cp "+at+" NEW && mv NEW "+at)
			}
			if st.Mode&unix.S_IFMT != unix.S_IFDIR || len(i.own) == len(i.linked) && e.Name() == "objects" && IsGit(path.Base(rel)) {
				continue // git's own: many, and caisson is not run from there
			}
			switch sub, err := openDir(int(f.Fd()), e.Name()); {
			case err == nil:
				if err := walk(sub, at); err != nil {
					return err
				}
			case errors.Is(err, unix.EACCES): // nor does code, which has no more rights
			case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR):
				return i.failed(at, err)
			}
		}
		return nil
	}
	fd, err := openDir(int(i.root.File.Fd()), ".")
	if err != nil {
		return i.failed(".", err)
	}
	return walk(fd, ".")
}

// refused is the error for a tree in which an input cannot be kept.
func (i *inputs) refused(name, problem, hint string) error {
	if hint != "" {
		hint += ", or "
	}
	if hint += "mount it :cow or :ro"; i.tree.dir {
		hint += ", or move that file out of the directory"
	}
	return &sandbox.Error{Op: "mount " + printable(i.root.Name), Kind: sandbox.ErrDenied, Rule: "built-in: " + ruleInputs,
		Problem: "code could change " + printable(name) + ", which was read for this run: " + printable(problem),
		Hint:    hint}
}

// openPart opens one name in a directory, a link itself.
func openPart(dir int, name string) (int, unix.Stat_t, error) {
	var st unix.Stat_t
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return -1, st, err
		}
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return -1, st, err
		}
		return fd, st, nil
	}
}

// readLink reads an open symbolic link.
func readLink(fd int) (string, error) {
	buf := make([]byte, maxPath)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
