// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"crypto/rand"
	"errors"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// errConflict says that the host changed while it was looked at.
var errConflict = errors.New("it was changed on the host meanwhile")

// placing puts one entry in its place. What was there has a name of its own for a moment
// and is compared once more: who exchanged it in between gets it back.
type placing struct {
	host    *host
	journal *journal
	entry   int
	e       *Entry
	dir     *os.File
	name    string
}

// placeIn opens the directory that an entry lies in.
func placeIn(h *host, j *journal, entry int, e *Entry) (*placing, error) {
	dir, name := path.Split(e.Path)
	fd, err := h.at(path.Clean(dir), unix.O_RDONLY|unix.O_DIRECTORY)
	if missing(err) || elsewhere(err) {
		return nil, errConflict
	}
	if err != nil {
		return nil, err
	}
	return &placing{h, j, entry, e, os.NewFile(uintptr(fd), dir), name}, nil
}

func (p *placing) fd() int       { return int(p.dir.Fd()) }
func (p *placing) close()        { p.dir.Close() }
func newTemp() string            { return tempPrefix + rand.Text() }
func (p *placing) drop(t string) { _ = removeAny(p.fd(), t) }

// now says what has a name in the directory; nil is nothing.
func (p *placing) now(name string) (*Base, *unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(p.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return p.host.base(&st), &st, nil
}

// asKept compares what has the entry's name with what the set says of it.
func (p *placing) asKept() (*unix.Stat_t, error) {
	now, st, err := p.now(p.name)
	switch {
	case err != nil:
		return nil, err
	case (now == nil) != (p.e.Base == nil), now != nil && changed(p.e.Base, now) != "":
		return nil, errConflict
	}
	return st, nil
}

// made tells the journal what was made under a name for the moment.
func (p *placing) made(temp string) error {
	_, st, err := p.now(temp)
	if err == nil && st == nil {
		err = unix.ENOENT
	}
	if err != nil {
		return err
	}
	return p.journal.add(journalLine{Entry: p.entry, Temp: temp, New: st.Ino})
}

// put gives the entry's name to what was made as temp. Where it fails temp is gone, too.
func (p *placing) put(temp string) error {
	if p.e.Base == nil {
		defer p.drop(temp)
		return p.putNew(temp)
	}
	err := unix.Renameat2(p.fd(), temp, p.fd(), p.name, unix.RENAME_EXCHANGE)
	switch {
	case errors.Is(err, unix.ENOENT):
		err = errConflict
	case noExchange(err):
		err = p.putOver(temp)
	case err == nil:
		if p.isKept(temp) && removeAny(p.fd(), temp) == nil {
			return nil
		}
		if err := p.giveBack(temp); err != nil {
			return err // temp is the user's
		}
		err = errConflict
	}
	p.drop(temp)
	return err
}

// giveBack undoes an exchange.
func (p *placing) giveBack(temp string) error {
	err := unix.Renameat2(p.fd(), temp, p.fd(), p.name, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) { // what was put in place is gone already
		err = unix.Renameat2(p.fd(), temp, p.fd(), p.name, unix.RENAME_NOREPLACE)
	}
	return err
}

// isKept says that what was moved away is what the set says of it: all but its ctime,
// which moving it changes.
func (p *placing) isKept(temp string) bool {
	now, _, err := p.now(temp)
	return err == nil && now != nil && sameMoved(p.e.Base, now)
}

func sameMoved(was, now *Base) bool {
	return was.Type == now.Type && was.Inode == now.Inode && (was.Type == Dir || was.Size == now.Size && was.Mtime.Equal(now.Mtime))
}

// putNew takes a name that nothing has.
func (p *placing) putNew(temp string) error {
	err := unix.Renameat2(p.fd(), temp, p.fd(), p.name, unix.RENAME_NOREPLACE)
	if noExchange(err) {
		if p.e.Type == Dir {
			if _, err := p.asKept(); err != nil {
				return err
			}
			err = unix.Renameat(p.fd(), temp, p.fd(), p.name)
		} else {
			err = unix.Linkat(p.fd(), temp, p.fd(), p.name, 0)
		}
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) {
		return errConflict
	}
	return err
}

// putOver replaces where the file system cannot exchange.
func (p *placing) putOver(temp string) error {
	if _, err := p.asKept(); err != nil {
		return err
	}
	if p.e.Base.Type == Dir {
		if err := unix.Unlinkat(p.fd(), p.name, unix.AT_REMOVEDIR); err != nil {
			return errConflict
		}
	} else if p.e.Type == Dir {
		if err := unix.Unlinkat(p.fd(), p.name, 0); err != nil {
			return err
		}
	}
	return unix.Renameat(p.fd(), temp, p.fd(), p.name)
}

func noExchange(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)
}

// takeAway removes the entry's file or link.
func (p *placing) takeAway() error {
	if _, err := p.asKept(); err != nil {
		return err
	}
	if p.e.Base.Type == Dir {
		return unix.Unlinkat(p.fd(), p.name, unix.AT_REMOVEDIR)
	}
	temp := newTemp()
	if err := p.journal.add(journalLine{Entry: p.entry, Temp: temp, Away: true}); err != nil {
		return err
	}
	err := unix.Renameat2(p.fd(), p.name, p.fd(), temp, unix.RENAME_NOREPLACE)
	switch {
	case errors.Is(err, unix.ENOENT):
		return errConflict
	case noExchange(err):
		return unix.Unlinkat(p.fd(), p.name, 0)
	case err != nil:
		return err
	}
	if p.isKept(temp) {
		return unix.Unlinkat(p.fd(), temp, 0)
	}
	if err := unix.Renameat2(p.fd(), temp, p.fd(), p.name, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	return errConflict
}

// removeAny removes a file, a link or an empty directory.
func removeAny(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	return err
}

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
