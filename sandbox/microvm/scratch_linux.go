// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"crypto/rand"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/internal/linux/ext4"
	"github.com/caisson-run/caisson/sandbox"
)

// scratch is the disk that a machine writes to: a file with holes, and in it a file system
// for each directory that has bounds of its own.
type scratch struct {
	systems []fileSystem
	length  int64
}

// fileSystem is one of them, where the guest is told that it lies.
type fileSystem struct {
	ext4.Options
	at *boot.Part
}

const (
	// partsFrom is where the first lies: there is nothing before it that a kernel could
	// take for a table of partitions.
	partsFrom = 1 << 20
	// leastFiles is how many files a file system has room for that should have fewer.
	leastFiles = 16
	// unbounded is the most that a directory without a bound may have, in bytes.
	unbounded = 1 << 40
	// usualFile is how many bytes are reckoned for each file where their number has no
	// bound, as mke2fs does.
	usualFile = 16 << 10
)

func (w *scratch) empty() bool { return len(w.systems) == 0 }

// part adds a file system of that many bytes and files; 0 is no bound. Its place is known
// once all are.
func (w *scratch) part(size, files int64, mode uint32, owner sandbox.User) *boot.Part {
	p := &boot.Part{}
	o := ext4.Options{Size: size, Inodes: files, Mode: uint16(mode), UID: uint32(owner.UID), GID: uint32(owner.GID)}
	rand.Read(o.UUID[:])
	w.systems = append(w.systems, fileSystem{o, p})
	return p
}

// divide gives each file system its place. One without a bound has what is free on the
// host's disk, as far as its files can have it.
func (w *scratch) divide(stateDir string) error {
	w.length = partsFrom
	for i := range w.systems {
		s := &w.systems[i]
		if s.Size == 0 {
			var fs unix.Statfs_t
			if err := unix.Statfs(stateDir, &fs); err != nil {
				return unkept(os.NewSyscallError("statfs", err))
			}
			s.Size = min(int64(fs.Bavail)*fs.Bsize, unbounded)
			s.shrink()
		}
		if s.Inodes == 0 {
			s.Inodes = max(s.Size/usualFile, leastFiles)
		}
		n, err := s.Length()
		if err != nil {
			return err
		}
		s.at.Offset, s.at.Length = w.length, n
		w.length += n
	}
	return nil
}

// shrink makes a size that was not asked for one that so few files can have.
func (s *fileSystem) shrink() {
	for s.Inodes > 0 && s.Size > ext4.Block {
		if _, err := s.Length(); !errors.Is(err, sandbox.ErrUnsupported) {
			return
		}
		s.Size -= s.Size / 8
	}
}

// format makes the file systems in f, which is empty.
func (w *scratch) format(f *os.File) error {
	if err := f.Truncate(w.length); err != nil {
		return err
	}
	for _, s := range w.systems {
		if err := ext4.Format(io.NewOffsetWriter(f, s.at.Offset), s.Options); err != nil {
			return err
		}
	}
	return nil
}

// parts is how the disk is divided.
func (w *scratch) parts() []boot.Part {
	var all []boot.Part
	for _, s := range w.systems {
		all = append(all, *s.at)
	}
	return all
}

// as divides it as it was before: what had no bound had another one then.
func (w *scratch) as(parts []boot.Part) error {
	if len(parts) != len(w.systems) {
		return sandbox.Errorf(sandbox.ErrInvalid, "resume sandbox", "it was written down with other directories")
	}
	w.length = partsFrom
	for i, p := range parts {
		if p.Offset != w.length || p.Length <= 0 || p.Offset+p.Length < p.Offset {
			return notAsWritten(machineFile, nil)
		}
		*w.systems[i].at = p
		w.length += p.Length
	}
	return nil
}

// holds refuses a disk of another length: the monitor that had it may have been in other
// hands, and one without bytes would bound nothing.
func (w *scratch) holds(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return unkept(err)
	}
	if info.Size() != w.length {
		return notAsWritten(scratchSerial, nil)
	}
	return nil
}
