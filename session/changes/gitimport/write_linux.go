// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"compress/zlib"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // git's own ids
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// writeObject writes a loose object. Nothing has its name before its content has been
// compared with that.
func (r *Repository) writeObject(id ID, kind Kind, size int64, content io.Reader) (err error) {
	dirName, name := id.path()
	dir, err := r.makeDirs(r.objects, dirName)
	if err != nil {
		return r.failed(err)
	}
	defer dir.Close()
	temp := "tmp_obj_" + rand.Text() // git takes away what has such a name and is old
	fd, err := unix.Openat(int(dir.Fd()), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return r.failed(&os.PathError{Op: "create", Path: temp, Err: err})
	}
	f := os.NewFile(uintptr(fd), temp)
	defer unix.Unlinkat(int(dir.Fd()), temp, 0)
	defer f.Close()
	z, sum := zlib.NewWriter(f), sha1.New()
	w := io.MultiWriter(z, sum)
	fmt.Fprintf(w, "%s %d\x00", kind, size)
	n, err := io.Copy(w, content)
	if err == nil && (n != size || ID(sum.Sum(nil)) != id) {
		err = fmt.Errorf("object %s has another content", id)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		return r.failed(err)
	}
	if err := errors.Join(r.own(f), f.Chmod(0o444), f.Sync()); err != nil {
		return r.failed(err)
	}
	if err := unix.Linkat(int(dir.Fd()), temp, int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return r.failed(&os.PathError{Op: "link", Path: name, Err: err})
	}
	return nil
}

// makeDirs opens a directory, and makes it and those above it where they are missing.
func (r *Repository) makeDirs(below *os.File, name string) (*os.File, error) {
	at, err := openBelow(below, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(path.Clean(name), "/") {
		next, err := openBelow(at, part, unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, fs.ErrNotExist) {
			if err = unix.Mkdirat(int(at.Fd()), part, 0o777); err == nil || errors.Is(err, unix.EEXIST) {
				if next, err = openBelow(at, part, unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
					err = r.own(next)
				}
			}
		}
		at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// own gives what root makes to the owner of the objects that are there.
func (r *Repository) own(f *os.File) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(r.objects.Fd()), &st); err != nil {
		return err
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}
