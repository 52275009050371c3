// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// maxHosts is how much of a root's hosts file is read, in bytes.
const maxHosts = 1 << 20

// WithNames is spec with read-only mounts of the files that tell its names
// (sandbox.Spec.NameFiles), as far as the root, a directory, has them. They lie in
// StateDir. The caller closes opened, also after an error; spec stays as it is.
func WithNames(spec *sandbox.Spec) (with *sandbox.Spec, opened []*os.File, err error) {
	own := *spec
	own.Mounts = slices.Clone(spec.Mounts)
	with = &own
	for _, f := range spec.NameFiles() {
		text, err := nameText(spec, f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		name := filepath.Join(spec.StateDir, "name"+strings.ReplaceAll(f.Target, "/", "-"))
		var file *os.File
		if err == nil {
			err = os.WriteFile(name, []byte(text), 0o644)
		}
		if err == nil {
			err = os.Chmod(name, 0o644) // whatever the umask
		}
		if err == nil {
			file, err = os.Open(name)
		}
		if err != nil {
			return nil, opened, &sandbox.Error{Op: "name sandbox", Kind: sandbox.ErrUnavailable, Problem: f.Target + " cannot be made for it", Cause: err,
				Hint: "see whether the disk of the state directory is full"}
		}
		opened = append(opened, file)
		with.Mounts = append(with.Mounts, sandbox.Mount{Source: file, Name: name, Target: f.Target})
	}
	return with, opened, nil
}

// nameText is what a file is to say; fs.ErrNotExist where the root has no regular file there,
// or a hosts file that is too large: it is left.
func nameText(spec *sandbox.Spec, f sandbox.NameFile) (string, error) {
	owner, at := spec.Root.Dir, "/"
	for _, b := range spec.Root.Binds {
		if sandbox.Within(f.Target, b.Target) && len(b.Target) >= len(at) {
			owner, at = b.Source, b.Target
		}
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(f.Target, at), "/")
	if owner == nil || rel == "" {
		return "", fs.ErrNotExist
	}
	beneath := uint64(unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS)
	fd, err := unix.Openat2(int(owner.Fd()), rel, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: beneath})
	if err == unix.ELOOP || err == unix.ENOTDIR {
		return "", fs.ErrNotExist // a link, or below a file
	}
	if err != nil {
		return "", err
	}
	there := os.NewFile(uintptr(fd), f.Target)
	defer there.Close()
	if info, err := there.Stat(); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() {
		return "", fs.ErrNotExist
	}
	if f.Target != sandbox.HostsFile {
		return f.Text, nil
	}
	was, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", err
	}
	defer was.Close()
	text, err := io.ReadAll(io.LimitReader(was, maxHosts+1))
	if err == nil && len(text) > maxHosts {
		err = fs.ErrNotExist
	}
	return sandbox.HostsFor(string(text), f.Text), err
}
