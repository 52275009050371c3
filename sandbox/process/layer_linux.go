// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox"
)

// A directory of a lower layer is renamed by writing down where it was, in an attribute
// that the kernel lets none but the host's root set (trusted.overlay.redirect). The
// builder is root of a user namespace, whose overlays refuse such a rename (EXDEV). So
// root's caisson makes the overlays itself: code inside can neither set these attributes
// nor see them, and what is hidden in a directory is a mount, which moves along with it.
//
// With one lower layer the kernel follows no redirect of that layer's: what the host's
// files have such attributes of leads nowhere.

// errPlain says that caisson's own overlay would be worth no more than the builder's.
var errPlain = errors.New("no such attribute can be set here")

// layer lays something private and writable over a detached mount of a directory.
func (w *rootfs) layer(src *source, ids identity) error {
	var made *os.File
	err := threads.Ending(func() (err error) {
		made, err = w.layerOver(src, ids)
		return err
	})
	switch {
	case errors.Is(err, errPlain):
		return nil // caisson is root of a container: the builder does it
	case err != nil:
		return &sandbox.Error{Op: "mount " + src.mount.Name, Kind: sandbox.ErrUnsupported, Problem: "this kernel cannot make it copy-on-write", Cause: err,
			Hint: "mount it :ro, or run on a level that can: --isolation gvisor"}
	}
	src.detached.Close()
	src.detached, src.layered = made, true
	return nil
}

// layerOver works in a mount namespace that ends with the calling thread; the overlay
// keeps its layers.
func (w *rootfs) layerOver(src *source, ids identity) (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("set mounts apart: %w", err)
	}
	options := [][2]string{{"mode", "0700"}}
	if w.cow > 0 {
		options = append(options, [2]string{"size", fmt.Sprint(w.cow)})
	}
	upper, err := newFilesystem("tmpfs", readWrite, options)
	if err != nil {
		return nil, err
	}
	defer upper.Close()
	// What is relative lies in it from here on.
	if err := attachAt(upper, "/"); err != nil {
		return nil, err
	}
	if err := unix.Fchdir(int(upper.Fd())); err != nil {
		return nil, err
	}
	for _, name := range []string{"lower", "upper", "work"} {
		if err := unix.Mkdir(name, 0o700); err != nil {
			return nil, err
		}
	}
	if unix.Setxattr("work", "trusted.caisson", nil, 0) != nil {
		return nil, errPlain
	}
	// The merged directory is what the upper one is: the user's, whatever the
	// lower one's owner, with the lower one's mode.
	if err := errors.Join(unix.Lchown("upper", ids.hostUID, ids.hostGID), unix.Chmod("upper", src.mode)); err != nil {
		return nil, err
	}
	if err := attachAt(src.detached, "lower"); err != nil {
		return nil, err
	}
	if err := w.layers.keep(src.mount.Target, "upper"); err != nil {
		return nil, err
	}
	return newFilesystem("overlay", int(readWrite|w.unexecutable(src.mount)), [][2]string{
		{"lowerdir", "lower"}, {"upperdir", "upper"}, {"workdir", "work"},
		{"redirect_dir", "on"}, {"metacopy", "off"}, {"index", "off"},
	})
}

// attachAt puts a detached mount at a place.
func attachAt(m *os.File, at string) error {
	if err := unix.MoveMount(int(m.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach %s: %w", m.Name(), err)
	}
	return nil
}

// newFilesystem makes a detached mount of a new file system of the kernel's own.
func newFilesystem(kind string, attributes int, options [][2]string) (*os.File, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	defer unix.Close(fs)
	for _, o := range options {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return nil, fmt.Errorf("%s with %s=%s: %w", kind, o[0], o[1], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("make %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", kind, err)
	}
	return os.NewFile(uintptr(fd), kind), nil
}
