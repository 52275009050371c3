// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
)

// socketDir is the directory of a machine's sockets. Its state directory is its box's, too.
func socketDir(stateDir string) string { return filepath.Join(stateDir, "sockets") }

// sharedDir is where what machines share is kept, beside the state directories.
func sharedDir(stateDir string) string { return filepath.Join(filepath.Dir(stateDir), ".vm") }

// box is the sandbox of a machine's monitor.
type box struct {
	ended chan struct{} // closed when nothing of it is left
	stop  context.CancelFunc
	made  made
	dir   string   // where the machine's own disks lie
	kept  []string // these disks: what is on them is as much its state as its memory

	mu    sync.Mutex
	usage sandbox.Usage
	res   *sandbox.Result
	err   error
	said  bytes.Buffer // what the monitor wrote, cut
}

// maxSaid is how much of the monitor's own words is kept.
const maxSaid = 4 << 10

// Write implements io.Writer for the monitor's stdout and stderr.
func (b *box) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said.Write(p[:max(0, min(len(p), maxSaid-b.said.Len()))])
	return len(p), nil
}

// sampleEvery is how often the box is measured.
const sampleEvery = 100 * time.Millisecond

// startBox starts a monitor. It is the caller's to stop.
func (d *Driver) startBox(ctx context.Context, s *sandbox.Spec, m monitor, room *scratch, from *written) (*box, error) {
	program, why, remedy := d.vmm.program()
	if why != "" {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: why, Hint: remedy}
	}
	plan, err := d.planBox(ctx, s, m, program, room, from)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	b := &box{ended: make(chan struct{}), stop: stop, made: plan.made, dir: s.StateDir, kept: plan.kept}
	exec := &sandbox.Exec{
		Argv: m.argv(plan.program, plan.machine), Dir: "/", Env: []string{"PATH=/usr/bin:/bin", "HOME=/tmp"}, Stdout: b, Stderr: b,
		SampleEvery: sampleEvery, Sample: b.sample,
	}
	if plan.stdout != nil {
		exec.Stdout = plan.stdout
	}
	go func() {
		defer close(b.ended)
		defer plan.close()
		res, err := d.opts.Box.Run(life, plan.spec, exec)
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

// reached is the limit that ended the box; empty when none did.
func (b *box) reached() sandbox.LimitName {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.res == nil {
		return ""
	}
	return b.res.Resource
}

// clean says whether the monitor ended by itself and without complaint: the guest has.
func (b *box) clean() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == nil && b.res != nil && b.res.ExitCode != nil && *b.res.ExitCode == 0
}

// exitWait is how long a monitor that has hung up may take to end.
const exitWait = 30 * time.Second

// gaveUp says whether the monitor ends by itself with a complaint, as QEMU does about a
// machine that it cannot read: neither killed nor for a limit.
func (b *box) gaveUp(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, exitWait)
	defer cancel()
	select {
	case <-b.ended:
	case <-ctx.Done():
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == nil && b.res != nil && b.res.Resource == "" && b.res.ExitCode != nil && *b.res.ExitCode != 0
}

// why says how it ended.
func (b *box) why() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := said(b.said.String())
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

// boxPlan is the sandbox of a monitor: this host's programs, the machine's kernel and disks,
// its sockets, and nothing else. The disk for scratch, and what its memory is written to where
// the monitor does that, are all that can be written to.
type boxPlan struct {
	spec    *sandbox.Spec
	machine *machine
	made    made
	from    *written // what it goes on from; nil is none
	kept    []string
	program string    // the monitor's
	stdout  io.Writer // takes what it writes there; nil is the box
	opened  []io.Closer
}

// planBox opens what a monitor sees. The caller closes it when the monitor has ended.
func (d *Driver) planBox(ctx context.Context, s *sandbox.Spec, m monitor, program string, room *scratch, from *written) (_ *boxPlan, err error) {
	p := &boxPlan{from: from, spec: &sandbox.Spec{ID: s.ID, Hostname: "vm", User: sandbox.DefaultUser(), StateDir: s.StateDir}}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	shared := sharedDir(s.StateDir)
	if err := os.Mkdir(shared, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, unkept(err)
	}
	image, initrd, err := d.kernelFor(shared, from)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(initrd)
	if err != nil {
		return nil, unkept(err)
	}
	p.machine = newMachine(s, info.Size(), room)
	p.spec.Limits = monitorLimits(&s.Limits, p.machine.memory)
	if p.program, err = m.box(p, program); err != nil {
		return nil, err
	}
	if err := errors.Join(p.show(image, boxKernel, false), p.show(initrd, boxInitrd, false)); err != nil {
		return nil, err
	}
	p.spec.Mounts = append(p.spec.Mounts, sandbox.Mount{Source: s.Root.Image.EROFS, Name: "the image", Target: boxImage})
	if p.made, err = d.madeOf(program, initrd, p.machine, s); err != nil {
		return nil, unkept(err)
	}
	if from.remembers() {
		p.machine.incoming = true
		if why := from.misfit(&p.made); why != "" {
			return nil, misfits(why)
		}
	}
	if err := p.copy(ctx, s, from); err != nil {
		return nil, err
	}
	if err := p.scratch(s, room, from); err != nil {
		return nil, err
	}
	return p, p.root(ctx, shared)
}

func (p *boxPlan) close() {
	for _, c := range p.opened {
		c.Close()
	}
}

// kernelFor is the newest kernel, or the one that a machine goes on with where that is still
// here, and an initial RAM disk with our agent for it.
func (d *Driver) kernelFor(shared string, from *written) (image, initrd string, err error) {
	all, err := d.kernels.List()
	if err != nil || len(all) == 0 {
		return "", "", &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "there is no kernel for a guest", Hint: "caisson vm kernel import", Cause: err}
	}
	k := all[0]
	if from.remembers() {
		for _, other := range all {
			if strings.Contains(from.Boot, "-"+other.Digest[:16]+"-") {
				k = other
			}
		}
	}
	agent, err := guest.OpenAgent()
	if err != nil {
		return "", "", &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the guest agent is missing", Cause: err}
	}
	defer agent.Close()
	if initrd, err = k.Initrd(agent, shared); err != nil {
		return "", "", unkept(err)
	}
	return k.Image(), initrd, nil
}

// show mounts something of ours, read-only.
func (p *boxPlan) show(name, target string, dir bool) error {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return unkept(err)
	}
	f := os.NewFile(uintptr(fd), name)
	p.opened = append(p.opened, f)
	p.spec.Mounts = append(p.spec.Mounts, sandbox.Mount{Source: f, Name: name, Target: target, Dir: dir})
	return nil
}

// disk makes a disk of the machine's own, which its snapshots have, too: a new one, which is
// empty, or the one that was written down.
func (p *boxPlan) disk(s *sandbox.Spec, serial string, mode os.FileMode, from *written) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.StateDir, serial), os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, unkept(err)
	}
	p.opened = append(p.opened, f)
	p.kept = append(p.kept, serial)
	if from == nil {
		return f, nil
	}
	if err := unpackDisk(f, filepath.Join(from.dir, serial)); err != nil {
		return nil, unkept(err)
	}
	return f, nil
}

// copy makes the disk with copies of what the machine mounts.
func (p *boxPlan) copy(ctx context.Context, s *sandbox.Spec, from *written) error {
	if len(s.Mounts) == 0 {
		return nil
	}
	f, err := p.disk(s, copiesSerial, 0o644, from)
	if err != nil {
		return err
	}
	p.spec.Mounts = append(p.spec.Mounts, sandbox.Mount{Source: f, Name: f.Name(), Target: boxCopies})
	if from != nil {
		return nil
	}
	return writeCopies(ctx, s, f)
}

// scratch makes the disk that the machine writes to. It has its length, holes included, and
// the monitor can make no file longer.
func (p *boxPlan) scratch(s *sandbox.Spec, room *scratch, from *written) error {
	if room.empty() {
		return nil
	}
	f, err := p.disk(s, scratchSerial, 0o600, from)
	if err == nil && from == nil {
		err = room.format(f)
	}
	if err != nil {
		return unkept(err)
	}
	if err := room.holds(f); err != nil {
		return err
	}
	p.spec.Limits.FileSize = max(p.spec.Limits.FileSize, room.length)
	p.spec.Mounts = append(p.spec.Mounts, sandbox.Mount{Source: f, Name: f.Name(), Target: boxScratch, Access: sandbox.ReadWrite})
	return nil
}

// root shows this host's programs, of which the monitor is one.
func (p *boxPlan) root(ctx context.Context, shared string) error {
	targets := make([]image.Target, len(p.spec.Mounts))
	for i, m := range p.spec.Mounts {
		targets[i] = image.Target{Path: m.Target, Dir: m.Dir}
	}
	for _, sc := range p.spec.Scratch {
		targets = append(targets, image.Target{Path: sc.Target, Dir: true})
	}
	root, err := image.Host(ctx, image.HostOptions{Cache: filepath.Join(shared, "cache"), User: p.spec.User, Targets: targets})
	if err != nil {
		return err
	}
	p.opened = append(p.opened, root)
	p.spec.Root = root.Sandbox()
	return nil
}

func unkept(err error) error {
	return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "what a machine needs cannot be kept", Hint: "look whether the state directory is writable and has 100 MB free", Cause: err}
}

// monitorShare is a monitor's own memory, beside the machine's, in bytes.
const monitorShare = 128 << 20

// monitorThreads is how many QEMU may have beside one for each processor: up to 64 read files
// for the machine (util/thread-pool.c), and it aborts when it cannot have one.
const monitorThreads = 128

// monitorLimits are those of the box: of a machine of that many MiB and its monitor.
func monitorLimits(l *sandbox.Limits, memory int64) sandbox.Limits {
	return sandbox.Limits{
		Memory: memory<<20 + monitorShare + translationBuffer<<20, CPUs: l.CPUs, Processes: monitorThreads + processors(l), OpenFiles: 1024, Disk: 1 << 20, Inodes: 64, Tmp: 1 << 20,
	}
}
