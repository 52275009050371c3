// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/sandbox"
)

// node is a device of the host's that some programs need.
type node struct {
	name         string
	major, minor uint32 // Documentation/admin-guide/devices.txt
}

var (
	kvmNode = node{"/dev/kvm", 10, 232}
	tunNode = node{tun.Path, 10, 200}
)

// openNode shows a device. The host's may belong to a group that a private uid is not in,
// so root makes a node of its own for it, in the sandbox's state directory; others have
// the host's, and may open it or not.
func (w *rootfs) openNode(n node, private bool) error {
	name := n.name
	if private {
		name = filepath.Join(w.spec.StateDir, path.Base(n.name))
		err := unix.Mknod(name, unix.S_IFCHR, int(unix.Mkdev(n.major, n.minor)))
		if err == nil || err == unix.EEXIST {
			err = os.Chmod(name, 0o666)
		}
		if err != nil {
			return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "no node can be made for " + n.name, Cause: err}
		}
	}
	f, err := openRaw(name, noLinks)
	if err != nil {
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the host has no " + n.name, Cause: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(n.major, n.minor) {
		f.Close()
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: name + " is something else", Cause: err}
	}
	w.devices = append(w.devices, source{
		mount: sandbox.Mount{Source: f, Name: n.name, Target: n.name}, name: name, dev: st.Dev, ino: st.Ino, attr: deviceAttributes,
	})
	return nil
}
