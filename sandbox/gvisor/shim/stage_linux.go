// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// stageDir is where a privileged shim lays out what gVisor mounts by name, and
// has gVisor's own files. It is a tmpfs of the shim's own mount namespace: no
// other process sees it. The host directory under it is one that no sandbox may
// mount, so nothing is hidden.
const stageDir = "/run"

// ownDir is where all of that lies: a state directory below stageDir is shown beside it
// (see uncover), and may have any other name.
const ownDir = stageDir + "/.caisson"

// layStage makes the stage. As root, gVisor's gofer runs as a private uid, which can reach neither the
// 0700 state directory nor most of what an operator mounts; and a name on the host may be swapped
// between check and use. Here no other process can look or write. The owner started this process in a
// mount namespace of its own.
//
// It returns the directory that the stage hides, open.
func layStage() (hidden int, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, fmt.Errorf("setting mounts apart: %w", err)
	}
	self, selfErr := cloneSelf() // which may lie there
	if selfErr == nil {
		defer unix.Close(self)
	}
	hidden, err = unix.Open(stageDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("what the stage will hide: %w", err)
	}
	if err := unix.Mount("caisson", stageDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size="+strconv.Itoa(stageSize)); err != nil {
		unix.Close(hidden)
		return -1, fmt.Errorf("mounting the stage on %s: %w", stageDir, err)
	}
	if err := os.Mkdir(ownDir, 0o755); err != nil {
		unix.Close(hidden)
		return -1, err
	}
	if selfErr == nil {
		startWithin(ownDir, self)
	}
	return hidden, nil
}

// stageSize is how many bytes the stage takes of what does not depend on the order: a
// tiny program, locks, and gVisor's state without what it repeats of the spec.
const stageSize = 1 << 20

// specCopies is how many times over the spec may lie on the stage: the bundle has it and
// gVisor's state, which names its arguments and mounts in other places, too.
const specCopies = 4

// widenStage makes room on the stage for the spec of o, which is as long as a command
// line, an environment and a list of mounts are. The stage is there before they are
// known.
func widenStage(o *protocol.Order) error {
	size := stageSize + specCopies*(len(o.Spec)+len(o.BootSpec))
	if err := unix.Mount("", stageDir, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "size="+strconv.Itoa(size)); err != nil {
		return fmt.Errorf("making room on %s for its spec: %w", stageDir, err)
	}
	return nil
}

// showState makes the state directory what this process and gVisor need, where it is not:
// in this mount namespace alone.
func showState(dir string, hidden int) error {
	defer unix.Close(hidden)
	if err := uncover(dir, hidden); err != nil {
		return fmt.Errorf("the state directory %s: %w", dir, err)
	}
	if err := executable(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("taking noexec off the state directory %s: %w", dir, err)
	}
	return nil
}

// uncover shows the state directory on the stage where the stage hides it, as it does
// one that systemd has made (RuntimeDirectory=): what is asked of this process has names
// there, and its files are made there. All of the directory below stageDir that it lies
// in is shown, under its own name: snapshots lie beside the sandboxes.
func uncover(dir string, hidden int) error {
	rest, ok := strings.CutPrefix(filepath.Clean(dir), stageDir+"/")
	if !ok {
		return nil
	}
	top, _, _ := strings.Cut(rest, "/")
	tree, err := unix.OpenTree(hidden, top, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(tree)
	return attach(handedFile{fd: tree, dir: true}, filepath.Join(stageDir, top))
}

// executable lays a copy of the mount that dir lies in over dir, without noexec, where it
// has that: what programs inside write to scratch is mapped from files here. dir is not
// what this process removes in the end.
func executable(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Flags&unix.MS_NOEXEC == 0 { // ST_NOEXEC has the same number
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NOEXEC}); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// stage attaches the detached mounts that the owner handed over below
// ownDir and names them there.
func stage(handed []handedFile) error {
	for i, h := range handed {
		path := filepath.Join(ownDir, strconv.Itoa(i))
		if err := attach(h, path); err != nil {
			return fmt.Errorf("mount %s: %w", h.target, err)
		}
		h.rename(path)
	}
	return nil
}

// attach puts a detached mount at path, which it makes.
func attach(h handedFile, path string) error {
	var err error
	if h.dir {
		err = os.Mkdir(path, 0o755)
	} else {
		err = os.WriteFile(path, nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := unix.MoveMount(h.fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}
