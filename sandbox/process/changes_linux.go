// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/sandbox"
)

// layers are the upper layers of a sandbox's copy-on-write directories. They lie in
// mounts that no path leads to. An open directory keeps each: where the builder makes
// the mount it sends one, which waits in a socket for the sandbox's owner.
type layers struct {
	targets      []string // where the mounts show inside, in the order in which they are made
	ours, theirs *os.File // the socket

	mu   sync.Mutex
	sent []string            // of targets, those that the builder sends
	dirs map[string]*os.File // what is here, by target
	made map[string]bool     // the mounts that caisson made itself, by target
}

// newLayers is nil where nothing is mounted copy-on-write, or will be asked for.
func newLayers(spec *sandbox.Spec, f first) (*layers, error) {
	l := &layers{}
	if f.agent == nil && spec.OnChanges == nil {
		return nil, nil
	}
	for _, m := range spec.Mounts {
		if m.Access == sandbox.CopyOnWrite && m.Dir {
			l.targets = append(l.targets, m.Target)
		}
	}
	if len(l.targets) == 0 {
		return nil, nil
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	l.ours, l.theirs = os.NewFile(uintptr(fds[0]), "layers"), os.NewFile(uintptr(fds[1]), "layers")
	l.dirs, l.made = map[string]*os.File{}, map[string]bool{}
	return l, nil
}

// keep keeps the upper layer at a path of this thread's.
func (l *layers) keep(target, upper string) error {
	if l == nil {
		return nil
	}
	dir, err := openRaw(upper, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err == nil {
		l.dirs[target], l.made[target] = dir, true
	}
	return err
}

// marks are what the kernel notes in the layer of a mount.
func (l *layers) marks(target string) mounts.OverlayMarks {
	if l.made[target] {
		return mounts.TrustedMarks
	}
	return mounts.UserMarks
}

// send has the builder send what it has open at the upper layer's path.
func (l *layers) send(s *script, target, upper string) {
	if l == nil {
		return
	}
	l.sent = append(l.sent, target)
	dir := s.slot()
	s.keep = append(s.keep, l.theirs)
	s.call(unix.SYS_OPENAT, unix.AT_FDCWD, upper, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0).save(dir)
	s.sendFile(int(l.theirs.Fd()), dir)
	s.close(dir)
}

// dir is the upper layer of the mount at target, which stays l's.
func (l *layers) dir(target string) (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.dirs[target] == nil && len(l.sent) > 0 {
		dir, err := receive(l.ours)
		if err != nil {
			return nil, &sandbox.Error{Op: "read changes", Kind: sandbox.ErrUnavailable, Problem: "the layer of " + l.sent[0] + " was not made", Cause: err}
		}
		l.dirs[l.sent[0]] = dir
		l.sent = l.sent[1:]
	}
	if dir := l.dirs[target]; dir != nil {
		return dir, nil
	}
	return nil, sandbox.Errorf(sandbox.ErrInvalid, "read changes", "no directory is mounted copy-on-write at %s", target)
}

// receive takes one descriptor that has been sent.
func receive(from *os.File) (*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(from.Fd()), make([]byte, 1), oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("a message without a descriptor: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("a message without a descriptor: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "upper layer"), nil
}

func (l *layers) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.dirs {
		d.Close()
	}
	l.ours.Close()
	l.theirs.Close()
}

// tellChanges gives the layers of a sandbox in which nothing runs any more to who asked
// for them. What could not be read is not told.
func (b *box) tellChanges(ctx context.Context) {
	if b.spec.OnChanges == nil || b.layers == nil {
		return
	}
	for _, target := range b.layers.targets {
		dir, err := b.layers.dir(target)
		if err != nil {
			continue
		}
		r, w := io.Pipe()
		go func() {
			w.CloseWithError(mounts.WriteUpper(context.WithoutCancel(ctx), dir, b.layers.marks(target), w))
		}()
		_ = b.spec.OnChanges(target, r) // which has its error
		r.Close()
	}
}

var _ sandbox.ChangeReader = (*instance)(nil)

// ReadChanges reads the upper layer by itself, through no process inside.
func (i *instance) ReadChanges(ctx context.Context, target string, w io.Writer) error {
	if i.box.layers == nil {
		return sandbox.Errorf(sandbox.ErrInvalid, "read changes", "no directory is mounted copy-on-write at %s", target)
	}
	dir, err := i.box.layers.dir(target)
	if err != nil {
		return err
	}
	goOn, err := i.still(ctx)
	if err != nil {
		return err
	}
	defer goOn()
	return mounts.WriteUpper(ctx, dir, i.box.layers.marks(target), w)
}

// still has nothing inside run until goOn is called. Where this host's kernel cannot
// have it stand still, as without a control group, the sandbox is ended.
func (i *instance) still(ctx context.Context) (goOn func(), err error) {
	i.pause.mu.Lock()
	defer i.pause.mu.Unlock()
	switch {
	case i.isOver() || i.pause.paused:
		return func() {}, nil
	case i.box.group != nil && i.host != nil:
		if err := i.host.Freeze(ctx, i.box.group); err == nil {
			return func() { _ = i.box.group.Thaw() }, nil // it dies of being killed all the same
		}
	}
	i.box.kill()
	select {
	case <-i.box.gone:
		<-i.ended // which follow closes at once
		return func() {}, nil
	case <-time.After(i.box.remaining()):
		return nil, i.box.stuck()
	}
}

func (i *instance) isOver() bool {
	select {
	case <-i.box.gone:
		return true
	default:
		return i.pause.over
	}
}
