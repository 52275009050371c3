// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// makeFile puts a file in its place. It is whole and on the disk before it has the name.
func (p *placing) makeFile(content io.Reader) error {
	was, err := p.asKept()
	if err != nil {
		return err
	}
	f, temp, err := p.newFile()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := p.fill(f, content, was); err != nil {
		if temp != "" {
			p.drop(temp)
		}
		return err
	}
	if temp != "" {
		if err := p.made(temp); err != nil {
			p.drop(temp)
			return err
		}
		return p.put(temp)
	}
	if p.e.Base == nil {
		err := unix.Linkat(unix.AT_FDCWD, procPath(int(f.Fd())), p.fd(), p.name, unix.AT_SYMLINK_FOLLOW)
		if errors.Is(err, unix.EEXIST) {
			return errConflict
		}
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	temp = newTemp()
	if err := p.journal.add(journalLine{Entry: p.entry, Temp: temp, New: st.Ino}); err != nil {
		return err
	}
	if err := unix.Linkat(unix.AT_FDCWD, procPath(int(f.Fd())), p.fd(), temp, unix.AT_SYMLINK_FOLLOW); err != nil {
		return err
	}
	return p.put(temp)
}

// newFile makes a file without a name, or with one for the moment where the file system
// knows no such files.
func (p *placing) newFile() (f *os.File, temp string, err error) {
	fd, err := unix.Openat(p.fd(), ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), p.name), "", nil
	}
	temp = newTemp()
	if err := p.journal.add(journalLine{Entry: p.entry, Temp: temp}); err != nil {
		return nil, "", err
	}
	fd, err = unix.Openat(p.fd(), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, "", &os.PathError{Op: "create", Path: p.e.Path, Err: err}
	}
	return os.NewFile(uintptr(fd), p.name), temp, nil
}

// fill writes a file. It has the owner and the mode of the one that was there, but for
// the exec bit; never a set-id bit.
func (p *placing) fill(f *os.File, content io.Reader, was *unix.Stat_t) error {
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	mode := p.e.Mode&0o755 | 0o400
	if was != nil && p.e.Base.Type == File {
		mode = withExec(was.Mode&0o777, p.e.Exec())
	}
	if err := p.own(int(f.Fd()), was); err != nil {
		return err
	}
	if err := unix.Fchmod(int(f.Fd()), mode); err != nil {
		return err
	}
	return f.Sync()
}

func withExec(mode uint32, exec bool) uint32 {
	if exec {
		return mode | mode&0o444>>2
	}
	return mode &^ 0o111
}

// own gives a new file the owner that the old one has, or the directory. Only root does.
func (p *placing) own(fd int, was *unix.Stat_t) error {
	uid, gid, err := p.owner(was)
	if err != nil || uid < 0 {
		return err
	}
	return unix.Fchown(fd, uid, gid)
}

func (p *placing) owner(was *unix.Stat_t) (uid, gid int, err error) {
	if os.Geteuid() != 0 {
		return -1, -1, nil
	}
	if was == nil {
		was = &unix.Stat_t{}
		if err := unix.Fstat(p.fd(), was); err != nil {
			return -1, -1, err
		}
	}
	return int(was.Uid), int(was.Gid), nil
}

// makeDir makes a directory.
func (p *placing) makeDir() error {
	was, err := p.asKept()
	if err != nil {
		return err
	}
	temp := newTemp()
	if err := p.journal.add(journalLine{Entry: p.entry, Temp: temp}); err != nil {
		return err
	}
	if err := unix.Mkdirat(p.fd(), temp, 0o700); err != nil {
		return err
	}
	if err := p.dress(temp, was); err != nil {
		p.drop(temp)
		return err
	}
	return p.put(temp)
}

// dress gives a new directory its owner and its mode.
func (p *placing) dress(temp string, was *unix.Stat_t) error {
	fd, err := unix.Openat(p.fd(), temp, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := p.own(fd, was); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, p.e.Mode&0o755|0o700|st.Mode&unix.S_ISGID); err != nil { // a set-gid bit is the file system's, for the group
		return err
	}
	return p.made(temp)
}

// makeLink makes a symbolic link.
func (p *placing) makeLink() error {
	was, err := p.asKept()
	if err != nil {
		return err
	}
	temp := newTemp()
	if err := p.journal.add(journalLine{Entry: p.entry, Temp: temp}); err != nil {
		return err
	}
	if err := unix.Symlinkat(p.e.Link, p.fd(), temp); err != nil {
		return err
	}
	uid, gid, err := p.owner(was)
	if err == nil && uid >= 0 {
		err = unix.Fchownat(p.fd(), temp, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		err = p.made(temp)
	}
	if err != nil {
		p.drop(temp)
		return err
	}
	return p.put(temp)
}

// setMode changes a mode: of a file the exec bit alone.
func (p *placing) setMode() error {
	fd, err := unix.Openat(p.fd(), p.name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return errConflict
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	now := p.host.base(&st)
	if now.Type == Dir && now.Type == p.e.Base.Type && now.Inode == p.e.Base.Inode {
		return unix.Fchmod(fd, st.Mode&0o7000|p.e.Mode&0o777)
	}
	if changed(p.e.Base, now) != "" {
		return errConflict
	}
	return unix.Fchmod(fd, withExec(st.Mode&0o777, p.e.Exec()))
}
