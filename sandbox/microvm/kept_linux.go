// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// A disk of a machine is mostly holes, and may seem to be a thousand times as large as what
// is on it. In a snapshot, which is read as a whole to see that it is what was written, it is
// packed: pieces with an extent before each, in their order, and an extent without bytes at
// the disk's end.
type extent struct{ Offset, Bytes int64 }

// packDisk writes a disk of a machine that stands still to a new, private file, and says how
// long that is.
func packDisk(to, from string) (size int64, _ error) {
	in, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	if err := pack(out, in); err != nil {
		return 0, err
	}
	info, err := out.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), out.Close()
}

func pack(out io.Writer, in *os.File) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New(in.Name() + " is no regular file")
	}
	for at := int64(0); ; {
		from, end, err := nextData(in, at, info.Size())
		if err != nil {
			return err
		}
		if err := binary.Write(out, binary.BigEndian, extent{from, end - from}); err != nil {
			return err
		}
		if from == info.Size() {
			return nil
		}
		if _, err := io.CopyN(out, io.NewSectionReader(in, from, end-from), end-from); err != nil {
			return err
		}
		at = end
	}
}

// nextData is where the next piece of a file lies that is no hole; behind the last one,
// both are the file's size.
func nextData(f *os.File, at, size int64) (from, end int64, err error) {
	from, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) || err == nil && from >= size {
		return size, size, nil
	}
	if err == nil {
		end, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
	}
	if err != nil {
		return 0, 0, os.NewSyscallError("lseek", err)
	}
	if end = min(end, size); from < at || end <= from { // a hole by now: its machine's monitor is in other hands
		return 0, 0, errors.New("the disk is written to while it is packed")
	}
	return from, end, nil
}

// errPacked is about a disk that was changed after it was packed.
var errPacked = fmt.Errorf("%w: a disk is not as it was written", sandbox.ErrMisfit)

// unpackDisk makes out, which is empty, the disk that was packed into from.
func unpackDisk(out *os.File, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return unpack(out, bufio.NewReaderSize(in, 64<<10))
}

func unpack(out *os.File, in io.Reader) error {
	for at := int64(0); ; {
		var e extent
		if err := binary.Read(in, binary.BigEndian, &e); err != nil {
			return unread(err)
		}
		if e.Offset < at || e.Bytes < 0 || e.Offset+e.Bytes < e.Offset {
			return errPacked
		}
		if e.Bytes == 0 {
			return out.Truncate(e.Offset)
		}
		if _, err := io.CopyN(io.NewOffsetWriter(out, e.Offset), in, e.Bytes); err != nil {
			return unread(err)
		}
		at = e.Offset + e.Bytes
	}
}

// unread is an error of reading what was packed: its end is not where it was.
func unread(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errPacked
	}
	return err
}
