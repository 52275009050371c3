// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/internal/linux/landlock"
	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/internal/linux/seccomp"
	"github.com/caisson-run/caisson/sandbox"
)

// box is one sandbox as its owner sees it.
type box struct {
	spec  *sandbox.Spec
	plan  *plan
	group *cgroup.Group // nil without one

	opened []*os.File // closed by close
	layers *layers    // of what is mounted copy-on-write; nil without

	launch *launch
	gone   chan struct{} // closed when no process is left; nil before there are any

	began time.Time
	base  sandbox.Usage // of the group when the program began

	// mu is held over every look at the processes and over reaping them, so that
	// their numbers are theirs.
	mu      sync.Mutex
	init    int  // 0 before and after
	over    bool // there is no init any more, or never was one
	program int
	child   *child            // the program, and why it could not be executed
	limit   sandbox.LimitName // which limit ended it
	killed  time.Time         // when kill was first called; zero before
	sampler sampler

	clearing sync.Once
	unclear  error // what clear could not take away
}

// newBox prepares everything but the processes.
func (d *Driver) newBox(spec *sandbox.Spec, f first) (_ *box, err error) {
	if err := sandbox.CheckID(spec.ID); err != nil {
		return nil, err
	}
	if spec.User.UID == 0 || spec.User.GID == 0 {
		return nil, &sandbox.Error{Op: "--root", Kind: sandbox.ErrUnsupported, Problem: "the process level has no root of its own: code shares the host's kernel",
			Hint: "run as the user, or on a level with a kernel of its own (gvisor)"}
	}
	if spec.Sudo {
		return nil, &sandbox.Error{Op: "sudo", Kind: sandbox.ErrUnsupported, Problem: "the process level has no root of its own: code shares the host's kernel",
			Hint: "do without, or run on a level with a kernel of its own (gvisor)"}
	}
	if f.late == nil {
		if err := checkTexts(f); err != nil {
			return nil, err
		}
	}
	if err := spec.Limits.Check(d.limits()); err != nil {
		return nil, err
	}
	if f.agent != nil {
		if err := spec.Limits.CheckAgent(); err != nil {
			return nil, err
		}
	}
	spec, named, err := mounts.WithNames(spec)
	b := &box{spec: spec, opened: named}
	if err != nil {
		b.closeFiles()
		return nil, err
	}
	p := &plan{spec: spec, first: f, tap: d.opts.TAP}
	b.plan = p
	grouped := b.makeGroup(d.host()) // a fifth of the work, of which the rest knows nothing
	defer func() {
		if err != nil {
			_ = grouped()
			_ = b.close()
		}
	}()
	if p.ids, err = newIdentity(spec.User, euid, egid); err != nil {
		return nil, err
	}
	if p.filter, err = seccomp.Untrusted(runtime.GOARCH); err != nil {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "this machine has no system call filter", Cause: err}
	}
	allowed := landlock.Options{TCP: true} // in a network of its own, where no other process is
	if f.agent != nil {
		allowed.Paths = append(allowed.Paths, landlock.Path{FD: int(f.agent.Fd()), Access: landlock.Read})
	}
	if p.rules, err = landlock.New(allowed); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the kernel refused a Landlock ruleset", Cause: err}
	}
	if p.rootfs, err = newRootfs(spec); err != nil {
		return nil, err
	}
	if b.layers, err = newLayers(spec, f); err != nil {
		return nil, err
	}
	p.rootfs.layers = b.layers
	if x := spec.Executables; x != nil {
		if p.rules == nil {
			return nil, &sandbox.Error{Op: "executables", Kind: sandbox.ErrUnsupported, Problem: "this kernel has no Landlock that would refuse other programs",
				Hint: "boot with lsm=landlock,…, or run without the list"}
		}
		if p.readable, err = p.rootfs.readable(x.Closed); err != nil {
			return nil, err
		}
	}
	err = p.rootfs.openDevices()
	if err == nil && d.opts.KVM {
		err = p.rootfs.openNode(kvmNode, p.ids.private)
	}
	if err == nil && d.opts.TAP && spec.Network != nil {
		err = p.rootfs.openNode(tunNode, p.ids.private)
	}
	for _, s := range p.rootfs.devices {
		b.opened = append(b.opened, s.mount.Source)
	}
	if err != nil {
		return nil, err
	}
	if p.ids.private {
		if spec.Network == nil { // else the builder may have to make its device, by the host's /dev
			p.stage = onStage()
		}
		detached, err := p.rootfs.detach(p.ids)
		b.opened = append(b.opened, detached...)
		if err != nil {
			return nil, err
		}
	}
	if err := grouped(); err != nil {
		return nil, err
	}
	if b.launch, err = p.write(); err != nil {
		return nil, err
	}
	return b, nil
}

// checkTexts refuses what a C string cannot hold.
func checkTexts(f first) error {
	for _, list := range [][]string{f.argv, f.env, {f.dir}} {
		for _, s := range list {
			if strings.ContainsRune(s, 0) {
				return sandbox.Errorf(sandbox.ErrInvalid, "run", "%.80q has a NUL byte", s)
			}
		}
	}
	if !filepath.IsAbs(f.dir) {
		return sandbox.Errorf(sandbox.ErrInvalid, "run", "the working directory %q is not absolute", f.dir)
	}
	return nil
}

// makeGroup begins to make the control group that holds memory, processors, tasks
// and block I/O, as far as this host lets us, and the way into it. What it returns
// waits for that, and may be called again.
func (b *box) makeGroup(host *cgroup.Host) (wait func() error) {
	if host == nil || host.Why != "" {
		return func() error { return nil }
	}
	var group *cgroup.Group
	var entry groupEntry
	made := make(chan error, 1)
	go func() {
		var err error
		if group, entry.pids, err = b.newGroup(host); err == nil {
			err = entry.open(group, host.Version)
			if b.plan.first.agent == nil { // the waiter for its end reads it once
				group.Keep()
			}
		}
		made <- err
	}()
	return sync.OnceValue(func() error {
		err := <-made
		b.group, b.plan.group, b.opened = group, entry, append(b.opened, entry.files()...)
		return err
	})
}

// newGroup makes the group, and says whether it counts processes.
func (b *box) newGroup(host *cgroup.Host) (g *cgroup.Group, pids bool, err error) {
	want, err := host.LimitsOf(&b.spec.Limits, initShare, b.spec.StateDir)
	if err != nil {
		return nil, false, err
	}
	if want.Pids > 0 && few(b.spec.Limits.Processes) {
		want.Pids++ // the builder
	}
	g, err = host.Create(cgroup.NameOf(b.spec.ID, b.spec.StateDir), want)
	if err != nil {
		return nil, false, &sandbox.Error{
			Op: "limit sandbox", Kind: sandbox.ErrUnavailable, Problem: "its control group cannot be made", Cause: err,
			Hint: "see what caisson doctor says about control groups",
		}
	}
	return g, want.Pids > 0, nil
}

// open opens the way into a group.
func (d *groupEntry) open(g *cgroup.Group, version int) (err error) {
	if version == 2 {
		d.dir, err = g.FD()
		return err
	}
	for _, dir := range g.Dirs() {
		f, err := openRaw(filepath.Join(dir, "tasks"), unix.O_WRONLY)
		if err != nil {
			return err
		}
		d.tasks = append(d.tasks, f)
	}
	return nil
}

func (d *groupEntry) files() []*os.File {
	if d.dir != nil {
		return []*os.File{d.dir}
	}
	return d.tasks
}

// openRaw opens a file that is no affair of the runtime's poller.
func openRaw(name string, flags int) (*os.File, error) {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// start makes the processes. The calling goroutine is locked to its thread, which stays
// until end.
func (b *box) start() error {
	l := b.launch
	if l.mapper != nil {
		defer l.mapper.close()
	}
	if err := l.stand(); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.over = true
		return err
	}
	errno := l.start()
	b.mu.Lock()
	defer b.mu.Unlock()
	if errno != 0 {
		err := l.explain(errno)
		l.reapBuilder()
		l.clear()
		b.init, b.over = 0, true
		if l.mapper != nil && l.mapper.err != nil {
			err = &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "its user ids cannot be mapped", Cause: l.mapper.err}
		}
		return err
	}
	if b.group != nil && b.plan.first.late == nil {
		b.base.CPU = b.group.CPU() // all that is asked of a one-shot's
	}
	b.init, b.program, b.child = int(l.init.pid), int(l.program.pid), &l.program
	if !b.killed.IsZero() { // by who did not wait for this
		_ = unix.Kill(b.init, unix.SIGKILL)
	}
	return nil
}

// exceeded notes which limit has ended, or is about to end the sandbox. The
// first one counts.
func (b *box) exceeded(name sandbox.LimitName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit == "" {
		b.limit = name
	}
}

// signal sends a signal to the program's process group.
func (b *box) signal(s unix.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.program != 0 {
		_ = unix.Kill(-b.program, s)
	}
}

// closeFiles closes what the children have taken over.
func (b *box) closeFiles() {
	if b.plan != nil && b.plan.rules != nil {
		_ = b.plan.rules.Close()
		b.plan.rules = nil
	}
	for _, f := range b.opened {
		f.Close()
	}
	b.opened = nil
	b.layers.close()
}
