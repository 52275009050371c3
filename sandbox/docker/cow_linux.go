// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox"
)

// copyOnWrite is a detached mount that shows lower and keeps what is written to
// itself, in a tmpfs of its own: an overlay for a directory, a copy for a file.
//
// An overlay's layers are named, so it is put together in a mount namespace
// that lives as long as this function; the overlay keeps its layers.
func (t *trees) copyOnWrite(lower *os.File, m sandbox.Mount) (overlay *os.File, err error) {
	dir := filepath.Join(t.stateDir, "cow"+strconv.Itoa(len(t.made)))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	err = threads.Ending(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		options := "mode=0700"
		if t.disk > 0 {
			options += fmt.Sprintf(",size=%d", t.disk)
		}
		if t.inodes > 0 {
			options += fmt.Sprintf(",nr_inodes=%d", t.inodes)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return fmt.Errorf("mount tmpfs: %w", err)
		}
		var fd int
		var err error
		if m.Dir {
			if fd, err = t.overlay(lower, dir); err == nil {
				t.layers[m.Target], err = os.Open(filepath.Join(dir, "upper")) // which keeps the layer
			}
		} else {
			fd, err = t.copyFile(lower, dir)
		}
		if err == nil {
			overlay = os.NewFile(uintptr(fd), m.Name)
		}
		return err
	})
	return overlay, err
}

// overlay makes an overlay in dir, a tmpfs.
func (t *trees) overlay(lower *os.File, dir string) (int, error) {
	for _, name := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return -1, err
		}
	}
	if err := unix.MoveMount(int(lower.Fd()), "", unix.AT_FDCWD, filepath.Join(dir, "lower"), unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return -1, fmt.Errorf("attach the lower layer: %w", err)
	}
	// The top's owner and mode are the upper layer's.
	if err := like(filepath.Join(dir, "lower"), filepath.Join(dir, "upper")); err != nil {
		return -1, err
	}
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("overlay: %w", err)
	}
	defer unix.Close(fs)
	for _, layer := range []string{"lower", "upper", "work"} {
		if err := unix.FsconfigSetString(fs, layer+"dir", filepath.Join(dir, layer)); err != nil {
			return -1, fmt.Errorf("overlay's %s layer: %w", layer, err)
		}
	}
	// Directories of the lower layer can be renamed: see sandbox/process/layer_linux.go.
	if err := unix.FsconfigSetString(fs, "redirect_dir", "on"); err != nil {
		return -1, fmt.Errorf("overlay's redirects: %w", err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make the overlay: %w", err)
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// like gives to the owner and mode of from.
func like(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	if err := unix.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	return unix.Chmod(to, st.Mode&0o1777)
}

// copyFile copies a file into dir, a tmpfs, and mounts the copy.
func (t *trees) copyFile(lower *os.File, dir string) (int, error) {
	at := filepath.Join(dir, "lower")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		return -1, err
	}
	if err := unix.MoveMount(int(lower.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return -1, fmt.Errorf("attach the file: %w", err)
	}
	src, err := os.Open(at)
	if err != nil {
		return -1, err
	}
	defer src.Close()
	name := filepath.Join(dir, "copy")
	dst, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return -1, err
	}
	defer dst.Close()
	if _, err := io.Copy(dst, src); err != nil {
		return -1, err
	}
	if err := like(at, name); err != nil {
		return -1, err
	}
	return unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}
