// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/sandbox"
)

// Placeholders are files and directories that were made in a read-write
// workspace because only what exists can be mounted over. They are removed
// when the last sandbox that uses the workspace ends.
//
// The order is: Join, Scan, Make, run, Close. Joining first matters: what Scan
// then finds of another sandbox's placeholders cannot vanish below the mounts
// of this one.
//
// For each workspace there is a journal in the state directory. Who uses the
// workspace holds a shared flock on it; it is opened, made and removed only
// under the exclusive flock of one file for all of them. A placeholder is made
// under a random name, its inode is written to the journal, and only then it
// gets its own name, without replacing anything. So SIGKILL at any moment
// leaves nothing that the next Join or Sweep could not tell from a user's own
// file; after a power failure an empty file may stay behind.
type Placeholders struct {
	dir     string
	root    *os.File // the workspace, O_PATH
	journal *os.File
}

// Join says that a sandbox is about to use the workspace read-write. dir is a
// directory of ours, made when it is missing, and the same for all sandboxes.
// What a dead owner left in the workspace is removed first.
func Join(dir string, root *Source) (*Placeholders, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, placeError("make "+dir, err)
	}
	fd, err := unix.FcntlInt(root.File.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, placeError("guard "+root.Name, err)
	}
	p := &Placeholders{dir: dir, root: os.NewFile(uintptr(fd), root.Real)}
	head := journalHead{root.Real, root.Dev, root.Ino, mounts.DirectoryMark(dir)}
	name := filepath.Join(dir, fmt.Sprintf("%x-%x%s", root.Dev, root.Ino, journalSuffix))
	err = exclusively(dir, func() error {
		f, alone, err := openJournal(name)
		if err != nil {
			return err
		}
		p.journal = f
		if alone {
			if err := clean(f, p.root); err != nil {
				return err
			}
			if err := restart(f, head); err != nil {
				return err
			}
		}
		return flock(f, unix.LOCK_SH)
	})
	if err != nil {
		if p.journal != nil {
			p.journal.Close()
		}
		p.root.Close()
		return nil, placeError("guard "+root.Name, err)
	}
	return p, nil
}

// Make makes the placeholders of those matches that are absent. It returns
// ErrConflict when something else is there by now: then Scan again.
func (p *Placeholders) Make(ms []Match) error {
	return exclusively(p.dir, func() error {
		for _, m := range ms {
			if !m.Absent {
				continue
			}
			if err := p.make(m); err != nil {
				var known *sandbox.Error
				if errors.As(err, &known) {
					return err
				}
				return placeError("guard "+path.Join(p.root.Name(), m.Rel), err)
			}
		}
		return nil
	})
}

// Files are those of matches that are placeholders and look like something new: files, and
// a .git. Another sandbox may have made them.
func (p *Placeholders) Files(ms []Match) []string {
	var out []string
	for _, m := range ms {
		name := path.Base(m.Rel)
		if m.Do != Keep || m.Dir && name != noGit.name {
			continue
		}
		if known, ok := protectedByName()[name]; m.Absent || (name == noGit.name || ok && known.missing) && p.madeAt(m.Rel) {
			out = append(out, m.Rel)
		}
	}
	return out
}

// madeAt is made for a path in the workspace.
func (p *Placeholders) madeAt(rel string) bool {
	parent, err := openParent(p.root, rel)
	if err != nil {
		return false
	}
	defer parent.Close()
	return p.made(int(parent.Fd()), path.Base(rel))
}

// made says whether what is called name in dir is a placeholder, of any sandbox that
// has a directory read-write.
func (p *Placeholders) made(dir int, name string) bool {
	if p == nil {
		return false
	}
	st, born, err := statBorn(dir, name)
	if err != nil {
		return false
	}
	is := func(l journalLine) bool {
		return l.Ino != 0 && l.Dev == st.Dev && l.Ino == st.Ino && l.Born == born && asMade(dir, name, &st, l)
	}
	journals, err := filepath.Glob(filepath.Join(p.dir, "*"+journalSuffix))
	if err != nil {
		return false
	}
	for _, journal := range journals {
		b, err := os.ReadFile(journal)
		if err != nil {
			continue // its sandboxes have ended
		}
		_, lines, _ := parseJournal(b)
		if slices.ContainsFunc(lines, is) {
			return true
		}
	}
	return false
}

// asMade says whether nothing was put into a placeholder: another sandbox that has the
// directory in another mount may have written to it.
func asMade(dir int, name string, st *unix.Stat_t, l journalLine) bool {
	switch kind := st.Mode & unix.S_IFMT; {
	case l.Dir && kind == unix.S_IFDIR:
		fd, err := openDir(dir, name)
		if err != nil {
			return false
		}
		f := dirFile(fd)
		defer f.Close()
		_, err = f.ReadDir(1)
		return errors.Is(err, io.EOF)
	case !l.Dir && kind == unix.S_IFREG:
		return st.Size == int64(len(l.Text)) && (st.Size == 0 || hasText(dir, name, l.Text))
	}
	return false
}

// make makes one placeholder.
func (p *Placeholders) make(m Match) error {
	parent, err := openParent(p.root, m.Rel)
	if err != nil {
		return err
	}
	defer parent.Close()
	name := path.Base(m.Rel)
	line := journalLine{Rel: m.Rel, Temp: tempName + rand.Text(), Dir: m.Dir, Text: m.Text}
	if err := appendLine(p.journal, line); err != nil {
		return err
	}
	fd := int(parent.Fd())
	if m.Dir {
		err = unix.Mkdirat(fd, line.Temp, 0o755)
	} else {
		err = createAt(fd, line.Temp, m.Text)
	}
	if err != nil {
		return err
	}
	st, born, err := statBorn(fd, line.Temp)
	if err != nil {
		return err
	}
	line.Dev, line.Ino, line.Born = st.Dev, st.Ino, born
	if err := appendLine(p.journal, line); err != nil {
		return err
	}
	err = unix.Renameat2(fd, line.Temp, fd, name, unix.RENAME_NOREPLACE)
	if err == nil {
		return nil
	}
	removeIf(fd, line.Temp, line)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	// Another sandbox that joined made it between our Scan and now, or the
	// user did: the kind decides whether it can be mounted over as planned.
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		if kind := st.Mode & unix.S_IFMT; m.Dir && kind == unix.S_IFDIR || !m.Dir && kind == unix.S_IFREG {
			return nil
		}
	}
	return &sandbox.Error{Op: "guard " + path.Join(p.root.Name(), m.Rel), Kind: sandbox.ErrConflict,
		Problem: "it came into being while the workspace was looked at", Hint: "try again"}
}

// createAt makes a file with a text.
func createAt(dir int, name, text string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Close says that the sandbox has ended. The last one to leave removes the
// placeholders: those that are still the very objects that were made, and
// still as they were made. It is idempotent.
func (p *Placeholders) Close() error {
	if p.journal == nil {
		return nil
	}
	err := exclusively(p.dir, func() error {
		defer p.root.Close()
		defer p.journal.Close()
		alone, err := tryLock(p.journal)
		if err != nil || !alone {
			return err
		}
		return errors.Join(clean(p.journal, p.root), os.Remove(p.journal.Name()))
	})
	p.journal = nil
	if err != nil {
		return placeError("clean "+p.root.Name(), err)
	}
	return nil
}

// Sweep removes the placeholders of dead owners in all workspaces.
func Sweep(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	err := exclusively(dir, func() error {
		names, err := filepath.Glob(filepath.Join(dir, "*"+journalSuffix))
		for _, name := range names {
			err = errors.Join(err, sweep(name))
		}
		return err
	})
	if err != nil {
		return placeError("sweep "+dir, err)
	}
	return nil
}

// sweep cleans one workspace unless it is used.
func sweep(name string) error {
	f, alone, err := openJournal(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if !alone {
		return nil
	}
	head, _, err := readJournal(f)
	if err == nil {
		var fd int
		fd, err = openPath(unix.AT_FDCWD, head.Root, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
		if err == nil {
			root := os.NewFile(uintptr(fd), head.Root)
			defer root.Close()
			var st unix.Stat_t
			// A workspace that was moved or replaced is not ours to touch.
			if err = unix.Fstat(fd, &st); err == nil && st.Dev == head.Dev && st.Ino == head.Ino {
				err = clean(f, root)
			}
		}
	}
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, errJournal) {
		return err
	}
	return os.Remove(name)
}

// clean removes what a journal lists, the deepest first. A journal of another state
// directory is left alone: its sandboxes may live.
func clean(journal, root *os.File) error {
	head, lines, err := readJournal(journal)
	if err != nil || head.State != mounts.DirectoryMark(filepath.Dir(journal.Name())) {
		return err
	}
	for _, l := range slices.Backward(lines) {
		parent, err := openParent(root, l.Rel)
		if err != nil {
			continue // the directory is gone, and the placeholder with it
		}
		removeIf(int(parent.Fd()), l.Temp, l)
		if l.Ino != 0 {
			removeIf(int(parent.Fd()), path.Base(l.Rel), l)
		}
		parent.Close()
	}
	return nil
}

// removeIf removes a name if it is the placeholder of a line, as it was made.
// Under its random name it is one even when its inode was not written down.
func removeIf(dir int, name string, l journalLine) {
	st, born, err := statBorn(dir, name)
	if err != nil {
		return
	}
	if (name != l.Temp || l.Ino != 0) && (st.Dev != l.Dev || st.Ino != l.Ino || born != l.Born) {
		return
	}
	switch kind := st.Mode & unix.S_IFMT; {
	case l.Dir && kind == unix.S_IFDIR:
		_ = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) // fails when it is not empty, as it should
	case !l.Dir && kind == unix.S_IFREG && st.Nlink == 1 && (st.Size == 0 || hasText(dir, name, l.Text)):
		_ = unix.Unlinkat(dir, name, 0)
	}
}

// statBorn looks at a name, and when what it names was made.
func statBorn(dir int, name string) (st unix.Stat_t, born int64, err error) {
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return st, 0, err
	}
	var x unix.Statx_t
	if unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &x) == nil && x.Mask&unix.STATX_BTIME != 0 {
		born = x.Btime.Sec*1e9 + int64(x.Btime.Nsec)
	}
	return st, born, nil
}

// hasText says whether a file holds exactly text.
func hasText(dir int, name, text string) bool {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	b := make([]byte, len(text)+1)
	n, err := unix.Read(fd, b)
	return err == nil && string(b[:n]) == text
}

// openParent opens the directory of rel in root, through no link.
func openParent(root *os.File, rel string) (*os.File, error) {
	fd, err := openPath(int(root.Fd()), path.Dir(rel), beneath)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path.Dir(rel)), nil
}

// placeError is a failure to make or remove placeholders.
func placeError(op string, err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return err
	}
	hint := "mount it :cow or :ro, which needs no placeholders"
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		hint = "free some space: the disk is full"
	}
	return &sandbox.Error{Op: printable(op), Kind: sandbox.ErrUnavailable, Problem: "what later runs on the host cannot be guarded", Hint: hint, Cause: err}
}
