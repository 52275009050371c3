// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/idmap"
	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox"
)

// insert mounts what was planned, and the sandbox's terminals, into the mount namespace of the container's
// first process. Whose number pid is is asked again when the namespace is held: nothing is ever mounted in
// another one.
func (p *plan) insert(ctx context.Context, pid int) error {
	if !p.inserts {
		return nil
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the container's mounts cannot be reached", Cause: err}
	}
	defer namespace.Close()
	if !isHere(ctx, pid, p.request.Entrypoint) {
		return errElsewhere
	}
	_, disk := p.spec.Shares()
	trees := trees{ids: p.ids, stateDir: p.spec.StateDir, disk: disk, inodes: p.spec.Limits.Inodes, layers: map[string]*os.File{}}
	defer trees.close()
	p.layers = trees.layers
	var names, targets []string
	if p.terminals {
		tree, err := newTerminals()
		if err != nil {
			return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "its terminals cannot be made", Cause: err}
		}
		trees.made, names, targets = append(trees.made, tree), append(names, "terminals"), append(targets, terminalDir)
	}
	for _, m := range p.inserted {
		if err := trees.add(m); err != nil {
			return err
		}
		names, targets = append(names, m.Name), append(targets, m.Target)
	}
	return threads.Ending(func() error {
		// A thread may enter a mount namespace when it shares its directories
		// with no other (setns(2)).
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
			return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the container's mounts cannot be entered", Cause: err}
		}
		for i, tree := range trees.made {
			if err := place(tree, targets[i]); err != nil {
				return &sandbox.Error{Op: "mount " + names[i], Kind: sandbox.ErrUnavailable, Problem: "it cannot be placed in the container", Cause: err}
			}
		}
		return nil
	})
}

// place attaches a detached mount at a path of this thread's namespace.
func place(tree *os.File, target string) error {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	at, err := unix.Openat2(root, strings.TrimPrefix(target, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.MoveMount(int(tree.Fd()), "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// trees are detached mounts, one for each thing that is to be inserted.
type trees struct {
	ids      identity
	stateDir string
	disk     int64 // bytes for each copy-on-write mount; 0: no bound
	inodes   int64

	owners map[[2]uint32]*idmap.Namespace
	made   []*os.File
	layers map[string]*os.File // upper layers of copy-on-write directories, by target
}

func (t *trees) close() {
	for _, ns := range t.owners {
		ns.Close()
	}
	for _, f := range t.made {
		f.Close()
	}
}

// add makes the mount for m.
func (t *trees) add(m sandbox.Mount) error {
	tree, err := t.translated(m)
	if err != nil {
		return err
	}
	if m.Access == sandbox.CopyOnWrite {
		lower := tree
		tree, err = t.copyOnWrite(lower, m)
		lower.Close()
		if err != nil {
			return &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrUnsupported, Problem: "this kernel cannot make it copy-on-write", Cause: err,
				Hint: "mount it :ro, or run on a level that can: --isolation gvisor"}
		}
	}
	t.made = append(t.made, tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if m.Access == sandbox.ReadOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrUnavailable, Problem: "the kernel does not make it " + m.Access.String(), Cause: err}
	}
	return nil
}

// translated is a detached mount of m in which the owner of the source is the
// sandbox's user. Where the kernel or the file system cannot translate owners
// the files show as another user's, which gives code inside less, never more.
// To be written to they must be translated, or what code makes would belong to
// no user of the host.
func (t *trees) translated(m sandbox.Mount) (*os.File, error) {
	ns, err := t.namespace(m)
	if err != nil {
		return nil, err
	}
	tree, err := ns.Mount(m.Source)
	if err == nil || m.Access == sandbox.ReadWrite || !errors.Is(err, sandbox.ErrUnsupported) {
		return tree, err
	}
	fd, err := unix.OpenTree(int(m.Source.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return nil, &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrUnavailable, Problem: "the kernel does not let it be mounted", Cause: err,
			Hint: "caisson doctor says whether mounts can be made here; if they can, it lies in another mount namespace: name a directory of this one"}
	}
	return os.NewFile(uintptr(fd), m.Name), nil
}

// namespace holds the translation for m's owner.
func (t *trees) namespace(m sandbox.Mount) (*idmap.Namespace, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(m.Source.Fd()), &st); err != nil {
		return nil, &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrInvalid, Problem: "it cannot be looked at", Cause: err}
	}
	owner := [2]uint32{st.Uid, st.Gid}
	if ns := t.owners[owner]; ns != nil {
		return ns, nil
	}
	ns, err := idmap.New([]idmap.Map{{Host: st.Uid, Shown: uint32(t.ids.userUID)}}, []idmap.Map{{Host: st.Gid, Shown: uint32(t.ids.userGID)}})
	if err != nil {
		return nil, err
	}
	if t.owners == nil {
		t.owners = map[[2]uint32]*idmap.Namespace{}
	}
	t.owners[owner] = ns
	return ns, nil
}
