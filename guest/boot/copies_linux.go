// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

const hardened = syscall.MS_NOSUID | syscall.MS_NODEV

// mountCopies mounts the copies of what the host mounts where no sandbox sees them.
func (c *Config) mountCopies() error {
	device, err := block(c.Copies)
	if err != nil {
		return err
	}
	return mount(device, copiesDir, "erofs", syscall.MS_RDONLY|hardened, "")
}

// show shows the copy of a mount, the n-th, where its target is.
func (c *Config) show(m *Mount, at string, n int) error {
	from := filepath.Join(copiesDir, filepath.Base(m.Copy))
	if m.Part == nil {
		if err := mount(from, at, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
		return mount("", at, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY|hardened, "")
	}
	layer := fmt.Sprintf("/changes-%d", n)
	if err := os.Mkdir(layer, 0o755); err != nil {
		return err
	}
	if err := c.mountPart(m.Part, layer, hardened); err != nil {
		return err
	}
	if m.Dir {
		c.takes(m.Target, filepath.Join(layer, upperName), nil)
		return m.layered(from, at, layer)
	}
	file := filepath.Join(layer, "file")
	if err := duplicateFile(from, file); err != nil && !errors.Is(err, os.ErrExist) { // it may have been changed before
		return err
	}
	return mount(file, at, "", syscall.MS_BIND, "")
}

// upperName is the directory of a layer that has the changes.
const upperName = "upper"

// layered shows a directory with a layer over it that takes changes. The top of a new layer
// has the owner and mode of what it lies over. A directory that is renamed says in the layer
// where it was, which leads to nothing but what it lies over.
func (m *Mount) layered(from, at, layer string) error {
	upper, work := filepath.Join(layer, upperName), filepath.Join(layer, "work")
	var st syscall.Stat_t
	if err := syscall.Stat(from, &st); err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	switch err := os.Mkdir(upper, 0o755); {
	case err == nil:
		err = errors.Join(os.Chown(upper, int(st.Uid), int(st.Gid)), os.Chmod(upper, os.FileMode(st.Mode&0o777)))
		if err != nil {
			return err
		}
	case !errors.Is(err, os.ErrExist):
		return err
	}
	return mount("changes", at, "overlay", hardened, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on", from, upper, work))
}

// duplicateFile copies a file with its owner and mode.
func duplicateFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(in.Fd()), &st); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := out.Chown(int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	return out.Chmod(os.FileMode(st.Mode & 0o777))
}
