// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// stageDir is where a privileged shim lays out what gVisor mounts by name, and
// has gVisor's own files. It is a tmpfs of the shim's own mount namespace: nobody
// else sees it. The host
// directory under it is one that no sandbox may mount, so nothing is hidden.
const stageDir = "/run"

// layStage makes the stage. As root, gVisor's gofer runs as a private uid, which can reach neither the
// 0700 state directory nor most of what an operator mounts; and a name on the
// host may be swapped between check and use. Here nobody else can look or
// write. The owner started this process in a mount namespace of its own.
func layStage() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("caisson", stageDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("mounting the stage on %s: %w", stageDir, err)
	}
	startWithin(stageDir)
	return nil
}

// stage attaches the detached mounts that the owner handed over below
// stageDir and names them there.
func stage(handed []handedFile) error {
	for i, h := range handed {
		path := filepath.Join(stageDir, strconv.Itoa(i))
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
