// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/wire"
)

// servePlace puts a tar stream in place below a directory, with the rights of a user. It
// goes by open directories and follows no link below that directory.
func (a *Agent) servePlace(w http.ResponseWriter, r *http.Request) {
	root := r.URL.Query().Get("root")
	if err := wire.CheckAbsolute(root); err != nil {
		writeError(w, &connectError{codeInvalid, err.Error()})
		return
	}
	u, err := a.user(r)
	if err != nil {
		writeError(w, asConnect(err))
		return
	}
	err = u.as(func() error {
		fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", root, err)
		}
		p := &placer{root: fd, dir: -1}
		defer p.close()
		return p.place(tar.NewReader(r.Body))
	})
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = errDiskFull
	}
	if err != nil {
		writeError(w, &connectError{codeInvalid, err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, struct{}{})
}

// Bounds of what is put in place.
const (
	maxPlaced      = 1_000_000 // names
	maxPlacedDepth = 256
)

// placer puts one stream in place.
type placer struct {
	root int
	dir  int // the directory of the name before, open; -1 is none
	at   string
	seen int
	// modes are those of directories, which get them last: one may forbid to write.
	modes []placedMode
	buf   [64 << 10]byte
}

type placedMode struct {
	path string
	mode uint32
}

func (p *placer) close() {
	p.leave()
	unix.Close(p.root)
}

func (p *placer) leave() {
	if p.dir >= 0 {
		unix.Close(p.dir)
	}
	p.dir, p.at = -1, ""
}

// place takes the stream to its end.
func (p *placer) place(tr *tar.Reader) error {
	for {
		hdr, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(hdr.Name, "/")
		if err := p.check(name); err != nil {
			return err
		}
		if err := p.entry(name, hdr, tr); err != nil {
			return fmt.Errorf("put %q in place: %w", name, err)
		}
	}
	for i := len(p.modes) - 1; i >= 0; i-- { // what is in a directory before it
		m := p.modes[i]
		if err := p.chmod(m.path, m.mode, unix.O_DIRECTORY); err != nil {
			return fmt.Errorf("put %q in place: %w", m.path, err)
		}
	}
	return nil
}

func (p *placer) check(name string) error {
	if p.seen++; p.seen > maxPlaced {
		return fmt.Errorf("there are more than %d names", maxPlaced)
	}
	parts := strings.Split(name, "/")
	if len(parts) > maxPlacedDepth {
		return fmt.Errorf("a name is deeper than %d directories", maxPlacedDepth)
	}
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || strings.Contains(part, "\x00") {
			return fmt.Errorf("%q is no name below a directory", name)
		}
	}
	return nil
}

func (p *placer) entry(name string, hdr *tar.Header, r io.Reader) error {
	mode := uint32(hdr.Mode) & 0o777
	base := path.Base(name)
	removed := hdr.Typeflag == tar.TypeChar && hdr.Devmajor == 0 && hdr.Devminor == 0
	modeAlone := hdr.PAXRecords[wire.PlaceMode] != ""
	err := p.enter(path.Dir(name))
	if (removed || modeAlone) && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)) {
		return nil // it is gone with what was above it
	}
	if err != nil {
		return err
	}
	switch {
	case removed:
		return p.remove(base)
	case modeAlone && hdr.Typeflag == tar.TypeReg:
		if err := p.chmod(name, mode, 0); !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	case hdr.Typeflag == tar.TypeDir:
		return p.makeDir(name, base, mode)
	case hdr.Typeflag == tar.TypeSymlink:
		if err := p.remove(base); err != nil {
			return err
		}
		return unix.Symlinkat(hdr.Linkname, p.dir, base)
	case hdr.Typeflag == tar.TypeReg:
		return p.makeFile(base, mode, r)
	}
	return errors.New("it is of a type that has no place here")
}

// enter opens a directory below the root, name by name.
func (p *placer) enter(dir string) error {
	if p.dir >= 0 && p.at == dir {
		return nil
	}
	p.leave()
	fd, err := unix.Openat(p.root, ".", openDir, 0)
	if err != nil {
		return err
	}
	if dir != "." {
		for name := range strings.SplitSeq(dir, "/") {
			next, err := unix.Openat(fd, name, openDir, 0)
			unix.Close(fd)
			if err != nil {
				return fmt.Errorf("%s in it: %w", name, err) // ENOTDIR for a link, too
			}
			fd = next
		}
	}
	p.dir, p.at = fd, dir
	return nil
}

// makeDir makes a directory, or takes the one that is there.
func (p *placer) makeDir(name, base string, mode uint32) error {
	var st unix.Stat_t
	err := unix.Fstatat(p.dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if err := p.remove(base); err != nil {
			return err
		}
		err = unix.ENOENT
	}
	if errors.Is(err, unix.ENOENT) {
		err = unix.Mkdirat(p.dir, base, 0o700)
	} else if err == nil && st.Mode&0o700 != 0o700 {
		err = p.chmod(name, st.Mode&0o777|0o700, unix.O_DIRECTORY)
	}
	if err == nil {
		p.modes = append(p.modes, placedMode{name, mode})
	}
	return err
}

// makeFile makes a file in the place of what is there.
func (p *placer) makeFile(base string, mode uint32, r io.Reader) error {
	if err := p.remove(base); err != nil {
		return err
	}
	fd, err := unix.Openat(p.dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{r}, p.buf[:])
	if err == nil {
		err = unix.Fchmod(fd, mode)
	}
	return errors.Join(err, f.Close())
}

// chmod sets the mode of a file or a directory that is no link.
func (p *placer) chmod(name string, mode uint32, flags int) error {
	if err := p.enter(path.Dir(name)); err != nil {
		return err
	}
	const open = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := unix.Openat(p.dir, path.Base(name), unix.O_RDONLY|open|flags, 0)
	if errors.Is(err, unix.EACCES) && flags == 0 {
		fd, err = unix.Openat(p.dir, path.Base(name), unix.O_WRONLY|open, 0)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, mode)
}

// remove removes what has a name, with all that is in it.
func (p *placer) remove(base string) error {
	return removeAt(p.dir, base, 0)
}

func removeAt(dir int, base string, depth int) error {
	err := unix.Unlinkat(dir, base, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	var st unix.Stat_t
	if serr := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); serr != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	if err := unix.Unlinkat(dir, base, unix.AT_REMOVEDIR); err == nil {
		return nil
	} else if depth > maxPlacedDepth {
		return err
	}
	fd, err := unix.Openat(dir, base, openDir, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), base)
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeAt(fd, name, depth+1); err != nil {
			return err
		}
	}
	return unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
}
