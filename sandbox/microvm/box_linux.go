// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
)

// boxDir is the state directory of the monitor's box, socketDir that of its sockets.
func boxDir(stateDir string) string    { return filepath.Join(stateDir, "box") }
func socketDir(stateDir string) string { return filepath.Join(stateDir, "sockets") }

// sharedDir is where what machines share is kept, beside the state directories.
func sharedDir(stateDir string) string { return filepath.Join(filepath.Dir(stateDir), ".vm") }

// box is the sandbox of a machine's monitor.
type box struct {
	ended chan struct{} // closed when nothing of it is left
	stop  context.CancelFunc

	mu    sync.Mutex
	usage sandbox.Usage
	res   *sandbox.Result
	err   error
	said  bytes.Buffer // what QEMU wrote, cut
}

// maxSaid is how much of QEMU's own words is kept.
const maxSaid = 4 << 10

// Write implements io.Writer for QEMU's stdout and stderr.
func (b *box) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said.Write(p[:max(0, min(len(p), maxSaid-b.said.Len()))])
	return len(p), nil
}

// sampleEvery is how often the box is measured.
const sampleEvery = 100 * time.Millisecond

// startBox starts QEMU. It is the caller's to stop.
func (d *Driver) startBox(ctx context.Context, s *sandbox.Spec) (*box, error) {
	program, err := findQEMU()
	if err != nil {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "there is no QEMU here", Hint: "apt-get install qemu-system-x86", Cause: err}
	}
	spec, memory, done, err := d.boxSpec(ctx, s)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	b := &box{ended: make(chan struct{}), stop: stop}
	exec := &sandbox.Exec{
		Argv: d.argv(program, s, memory), Dir: "/", Env: []string{"PATH=/usr/bin:/bin", "HOME=/tmp"}, Stdout: b, Stderr: b,
		SampleEvery: sampleEvery, Sample: b.sample,
	}
	go func() {
		defer close(b.ended)
		defer done()
		res, err := d.opts.Box.Run(life, spec, exec)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.res, b.err = res, err
	}()
	return b, nil
}

func (b *box) sample(u sandbox.Usage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.usage = u
}

// now is the last sample.
func (b *box) now() sandbox.Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usage
}

// why says how QEMU ended.
func (b *box) why() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := sandbox.Quoted(b.said.String())
	switch {
	case b.err != nil:
		return b.err.Error()
	case b.res == nil:
		return "it has not ended"
	case b.res.Resource != "":
		return fmt.Sprintf("the machine monitor reached its limit of %s", b.res.Resource)
	case b.res.ExitCode != nil:
		return fmt.Sprintf("the machine monitor ended with code %d: %s", *b.res.ExitCode, said)
	}
	return fmt.Sprintf("the machine monitor was ended by %s: %s", b.res.Signal, said)
}

// boxSpec is the sandbox of the monitor: this host's programs, the machine's kernel and
// disk read-only, its sockets, and nothing else; and how many MiB the machine has.
func (d *Driver) boxSpec(ctx context.Context, s *sandbox.Spec) (_ *sandbox.Spec, memory int64, done func(), err error) {
	var undo []func()
	done = func() {
		for _, f := range undo {
			f()
		}
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	shared := sharedDir(s.StateDir)
	for _, dir := range []string{shared, boxDir(s.StateDir)} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, 0, nil, unkept(err)
		}
	}
	spec := &sandbox.Spec{ID: s.ID, Hostname: "vm", User: sandbox.DefaultUser(), StateDir: boxDir(s.StateDir)}
	k, err := d.kernels.Newest()
	if err != nil || k == nil {
		return nil, 0, nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "there is no kernel for a guest", Hint: "caisson vm kernel import", Cause: err}
	}
	agent, err := guest.OpenAgent()
	if err != nil {
		return nil, 0, nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the guest agent is missing", Cause: err}
	}
	initrd, err := k.Initrd(agent, shared)
	agent.Close()
	if err != nil {
		return nil, 0, nil, unkept(err)
	}
	info, err := os.Stat(initrd)
	if err != nil {
		return nil, 0, nil, unkept(err)
	}
	memory = machineMemory(&s.Limits, info.Size())
	spec.Limits = monitorLimits(&s.Limits, memory)
	mount := func(name, target string, dir bool) error {
		fd, err := unix.Open(name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return unkept(err)
		}
		f := os.NewFile(uintptr(fd), name)
		undo = append(undo, func() { f.Close() })
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: f, Name: name, Target: target, Dir: dir})
		return nil
	}
	// A socket in a read-only mount can be connected to, and nothing be put beside it.
	err = errors.Join(mount(socketDir(s.StateDir), boxSockets, true), mount(k.Image(), boxKernel, false), mount(initrd, boxInitrd, false))
	if err != nil {
		return nil, 0, nil, err
	}
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: s.Root.Image.EROFS, Name: "the image", Target: boxImage})
	if len(s.Mounts) > 0 {
		f, err := os.OpenFile(filepath.Join(s.StateDir, copiesSerial), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return nil, 0, nil, unkept(err)
		}
		undo = append(undo, func() { f.Close() })
		if err := writeCopies(ctx, s, f); err != nil {
			return nil, 0, nil, err
		}
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: f, Name: f.Name(), Target: boxCopies})
	}
	targets := make([]image.Target, len(spec.Mounts))
	for i, m := range spec.Mounts {
		targets[i] = image.Target{Path: m.Target, Dir: m.Dir}
	}
	root, err := image.Host(ctx, image.HostOptions{Cache: filepath.Join(shared, "cache"), User: spec.User, Targets: targets})
	if err != nil {
		return nil, 0, nil, err
	}
	undo = append(undo, func() { root.Close() })
	spec.Root = root.Sandbox()
	return spec, memory, done, nil
}

func unkept(err error) error {
	return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "what a machine needs cannot be kept", Hint: "look whether the state directory is writable and has 100 MB free", Cause: err}
}

// monitorLimits are those of the box: of a machine of that many MiB and its monitor.
func monitorLimits(l *sandbox.Limits, memory int64) sandbox.Limits {
	return sandbox.Limits{
		Memory: memory<<20 + monitorShare + translationBuffer<<20, CPUs: l.CPUs, Processes: 64, OpenFiles: 1024, Disk: 1 << 20, Inodes: 64, Tmp: 1 << 20,
	}
}
