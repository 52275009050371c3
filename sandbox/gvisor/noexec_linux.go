// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// gVisor cannot have what is caisson's of a mount with noexec. Its file server mounts the
// root's tree anew in a user namespace of its own, with nosuid and nodev and without
// noexec; the kernel does not let that be taken away there (mount_namespaces(7)), and the
// file server ends without a word. The kernel inside maps programs from the file of an
// image, and those in scratch from the file behind it, which noexec forbids; a program
// that it happens to dies of SIGSEGV.
//
// As root caisson takes it away first, on copies of the mount that gVisor alone gets:
// here for the root, in the shim for the state directory. An ordinary user cannot. What
// an operator mounts keeps it.

// checkExec refuses a sandbox whose root or state directory an ordinary user's gVisor
// cannot have because of how it is mounted.
func checkExec(spec *sandbox.Spec, root *os.File) error {
	if euid == 0 {
		return nil
	}
	if isNoExec(root) {
		return noExecError(root, nil)
	}
	dir, err := os.OpenFile(spec.StateDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return stateError(err)
	}
	defer dir.Close()
	if isNoExec(dir) {
		return noExecError(dir, nil)
	}
	return nil
}

// allowExec takes noexec off tree, a detached copy of the mount that root lies in.
func allowExec(tree, root *os.File) error {
	if !isNoExec(tree) {
		return nil
	}
	// It cannot be where the mount is another user namespace's, or Linux older than 5.12.
	if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NOEXEC}); err != nil {
		return noExecError(root, err)
	}
	return nil
}

func isNoExec(f *os.File) bool {
	var st unix.Statfs_t
	// ST_NOEXEC has the same number.
	return unix.Fstatfs(int(f.Fd()), &st) == nil && st.Flags&unix.MS_NOEXEC != 0
}

func noExecError(at *os.File, cause error) error {
	return &sandbox.Error{
		Op: "start sandbox", Kind: sandbox.ErrUnsupported, Cause: cause,
		Problem: "caisson's files for it lie on " + mountOf(at) + ", which is mounted noexec, and gVisor cannot have them from there",
		Hint:    "set CAISSON_STATE to a directory of yours on a file system that is mounted without noexec",
	}
}

// mountOf names where the mount is that f lies in, as far as that can be told.
func mountOf(f *os.File) string {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return f.Name()
	}
	for name != "/" && sameMount(name, filepath.Dir(name)) {
		name = filepath.Dir(name)
	}
	return name
}

func sameMount(a, b string) bool {
	var sa, sb unix.Statx_t
	const flags = unix.AT_SYMLINK_NOFOLLOW
	if unix.Statx(unix.AT_FDCWD, a, flags, unix.STATX_MNT_ID, &sa) != nil || unix.Statx(unix.AT_FDCWD, b, flags, unix.STATX_MNT_ID, &sb) != nil {
		return false
	}
	return sa.Mask&sb.Mask&unix.STATX_MNT_ID != 0 && sa.Mnt_id == sb.Mnt_id
}
