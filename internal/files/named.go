// SPDX-License-Identifier: Apache-2.0

// Package files reads files that a user named, and makes new ones.
//
// A name in a flag, in a policy or in the environment may be that of a pipe without a
// writer, or of a device that waits, or never ends: what was opened is judged, and not
// waited for. A new file is there whole or not at all, and once where it is a key or
// something else that the first process makes.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Named is a file that was opened.
type Named struct {
	io.Reader
	io.Closer
	Mode fs.FileMode
}

// Open opens a regular file; a pipe that has a writer; what the caller has open, as
// <(COMMAND) of a shell is; or the null device, which many name for an empty file. Errors
// are *fs.PathError.
func Open(path string) (*Named, error) {
	f, mode, err := open(path)
	if err != nil {
		return nil, err
	}
	var r io.Reader = f
	switch {
	case mode.IsRegular(), ByDescriptor(path), path == os.DevNull:
	case mode.Type() == fs.ModeNamedPipe:
		r, err = begun(f)
	default:
		err = errNoFile
	}
	if err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return &Named{r, f, mode}, nil
}

// Read reads what Open opens, of most bytes.
func Read(path string, maximum int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(f, path, maximum)
}

// ReadOpen is Read that leaves a regular file open, for who has to know later which one
// was read. Of anything else there is nothing to know, and kept is nil.
func ReadOpen(path string, maximum int64) (b []byte, kept *os.File, err error) {
	f, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	if b, err = read(f, path, maximum); err != nil || !f.Mode.IsRegular() {
		f.Close()
		return b, nil, err
	}
	return b, f.Closer.(*os.File), nil
}

// Absolute is a path that names the same file from every working directory; empty for
// what the caller has open. Unlike filepath.Abs it follows links before "..", as the
// kernel does.
func Absolute(path string) (string, error) {
	if ByDescriptor(path) {
		return "", nil
	}
	if filepath.IsAbs(path) {
		return path, nil
	}
	dir, err := os.Getwd()
	return dir + "/" + path, err
}

// ReadRegular reads a regular file of most bytes, and nothing else: where it is read
// again later, a pipe would have nothing more.
func ReadRegular(path string, maximum int64) ([]byte, error) {
	f, mode, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !mode.IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errNoFile}
	}
	return read(f, path, maximum)
}

// ByDescriptor says whether path names what the caller has open.
func ByDescriptor(path string) bool {
	dir, name := filepath.Split(filepath.Clean(path))
	return dir == "/dev/fd/" || dir == "/proc/self/fd/" || dir == "/dev/" && name == "stdin"
}

var (
	errNoFile = errors.New("it is no file")
	errAlone  = errors.New("it is a pipe, and no process writes to it")
)

// open waits for no writer of a pipe and for no device.
func open(path string) (*os.File, fs.FileMode, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Mode(), nil
}

// begun waits for the first byte of a pipe, which is at its end if it has no writer, or
// waits for that.
func begun(f *os.File) (io.Reader, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(f, first); err == io.EOF {
		return nil, errAlone
	} else if err != nil {
		return nil, err
	}
	return io.MultiReader(strings.NewReader(string(first)), f), nil
}

func read(r io.Reader, path string, maximum int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maximum+1))
	if err == nil && int64(len(b)) > maximum {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it has more than %d bytes", maximum)}
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}
