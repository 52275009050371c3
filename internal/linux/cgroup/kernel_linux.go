// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// kernel is what the package asks of the operating system. Tests put a tree of
// ordinary files in its place, to see hierarchies that their host does not have.
type kernel struct {
	root     string // before every path of /proc and of the mount table; "" on a real host
	euid     int
	pid      int
	mkdir    func(dir string) error
	rmdir    func(dir string) error
	write    func(file, value string) error
	writable func(path string) bool
	xattr    func(path, name string) string
}

func realKernel() *kernel {
	return &kernel{
		euid:     os.Geteuid(),
		pid:      os.Getpid(),
		mkdir:    func(dir string) error { return os.Mkdir(dir, 0o755) },
		rmdir:    unix.Rmdir,
		write:    writeFile,
		writable: func(path string) bool { return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil },
		xattr:    readXattr,
	}
}

// writeFile writes value with one write call, as control files want it, and
// never makes a file.
func writeFile(file, value string) error {
	fd, err := open(file, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		if _, err = unix.Write(fd, []byte(value)); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// open opens a control file by hand. What os opens is offered to the poller,
// which takes no control file and costs as much as the rest.
func open(file string, flags int) (int, error) {
	for {
		fd, err := unix.Open(file, flags|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return fd, nil
		case !errors.Is(err, unix.EINTR):
			return -1, &fs.PathError{Op: "open", Path: file, Err: err}
		}
	}
}

func readXattr(path, name string) string {
	var buf [64]byte
	n, err := unix.Getxattr(path, name, buf[:])
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// read returns a control file's text without the last newline, or "".
func read(file string) string {
	fd, err := open(file, unix.O_RDONLY)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var text []byte
	for buf := make([]byte, 4096); ; {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return ""
		case n == 0:
			return strings.TrimSuffix(string(text), "\n")
		}
		text = append(text, buf[:n]...)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// table is where the hierarchies are mounted and which groups we are in.
type table struct {
	mounts []mount
	own    map[string]string
	where  string // what own was read from
}

func (k *kernel) table() table {
	t := table{
		mounts: parseMounts(read(filepath.Join(k.root, "/proc/self/mountinfo"))),
		where:  read(filepath.Join(k.root, ownGroups)),
	}
	t.own = parseOwn(t.where)
	for i := range t.mounts {
		t.mounts[i].point = filepath.Join(k.root, t.mounts[i].point)
	}
	return t
}

// mount returns the mount of a controller, "" being version 2. The last one
// wins: it lies on top.
func (t table) mount(controller string) (mount, bool) {
	for i := len(t.mounts) - 1; i >= 0; i-- {
		m := t.mounts[i]
		if controller == "" && m.version == 2 {
			return m, true
		}
		for _, c := range m.controllers {
			if c == controller {
				return m, true
			}
		}
	}
	return mount{}, false
}

// current returns the directory of our own group for a controller. It is
// false where the group cannot be seen, as in a container that shows another
// part of the tree.
func (t table) current(controller string) (string, bool) {
	dir, ok := t.locate(controller)
	return dir, ok && exists(dir)
}

// locate is current without a look at the disk.
func (t table) locate(controller string) (string, bool) {
	m, ok := t.mount(controller)
	own, found := t.own[controller]
	below, visible := strings.CutPrefix(own, strings.TrimSuffix(m.root, "/"))
	// A namespace shows what lies outside of it as "/..".
	if !ok || !found || !visible || (below != "" && below[0] != '/') || strings.Contains(below+"/", "/../") {
		return "", false
	}
	return filepath.Join(m.point, below), true
}
