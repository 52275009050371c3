// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// KVM's device (Documentation/admin-guide/devices.txt: misc, 232).
const (
	kvmName  = "/dev/kvm"
	kvmMajor = 10
	kvmMinor = 232
)

// openKVM shows KVM's device. The host's belongs to a group that a private uid is not in,
// so root makes a node of its own for it, in the sandbox's state directory; others have
// the host's, and are in its group or not.
func (w *rootfs) openKVM(private bool) error {
	name := kvmName
	if private {
		name = filepath.Join(w.spec.StateDir, "kvm")
		err := unix.Mknod(name, unix.S_IFCHR, int(unix.Mkdev(kvmMajor, kvmMinor)))
		if err == nil || err == unix.EEXIST {
			err = os.Chmod(name, 0o666)
		}
		if err != nil {
			return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "no node can be made for " + kvmName, Cause: err}
		}
	}
	f, err := openRaw(name, noLinks)
	if err != nil {
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the host has no " + kvmName, Cause: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(kvmMajor, kvmMinor) {
		f.Close()
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: name + " is something else", Cause: err}
	}
	w.devices = append(w.devices, source{
		mount: sandbox.Mount{Source: f, Name: kvmName, Target: kvmName}, name: name, dev: st.Dev, ino: st.Ino, attr: deviceAttributes,
	})
	return nil
}
