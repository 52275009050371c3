// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// box is one sandbox as its owner sees it: a plan, a control group, a shim.
type box struct {
	driver *Driver
	spec   *sandbox.Spec
	plan   *plan
	order  *protocol.Order
	began  time.Time // when the shim got it
	exec   *os.File  // the first process's program, when it is not a file inside

	group      *cgroup.Group // nil without one
	memoryHeld bool          // group bounds memory
	shim       *shimProcess  // in the group; it waits for its order

	layers  layers   // those that Spec.OnChanges gets
	bequest *bequest // what the next owner would get; nil without

	opened []*os.File // closed by close
	debug  string
}

// room says whether signals may wait for gVisor's processes. They make calls in all their
// threads, and wait for ever where they may not.
var room = threads.Room

func (d *Driver) newBox(spec *sandbox.Spec, f first, base uint32) (*box, error) {
	if err := sandbox.CheckID(spec.ID); err != nil {
		return nil, err
	}
	if builtWithCgo {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: cgoProblem, Hint: cgoRemedy}
	}
	if spec.Executables != nil && spec.Sudo {
		return nil, &sandbox.Error{Op: "executables", Kind: sandbox.ErrUnsupported, Problem: "where code may become root it can change what is listed",
			Hint: "run without the list, or without root"}
	}
	if err := spec.Limits.Check(d.limits()); err != nil {
		return nil, err
	}
	if !room() {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: threads.Full, Hint: threads.Remedy}
	}
	b := &box{driver: d, spec: spec, debug: d.opts.DebugDir}
	if err := b.make(f, base); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// make starts the shim first: it gets ready while the rest is made.
func (b *box) make(f first, base uint32) (err error) {
	if err := b.makeGroup(b.driver.host()); err != nil {
		return err
	}
	if b.shim, err = startShim(b.spec.StateDir, b.group); err != nil {
		return err
	}
	ids, err := newIdentity(b.spec.User, euid, egid, base)
	if err != nil {
		return err
	}
	if b.plan, err = newPlan(b.spec, f, ids); err != nil {
		return err
	}
	for _, m := range b.plan.files {
		if m.Source == nil {
			return sandbox.Errorf(sandbox.ErrInvalid, "mount "+m.Name, "it was not opened")
		}
	}
	if err := checkExec(b.spec, b.plan.files[0].Source); err != nil {
		return err
	}
	if err := checkDir(b.spec, f.dir); err != nil {
		return err
	}
	if err := b.makeFiles(); err != nil {
		return err
	}
	if err := b.makeMountpoints(); err != nil {
		return err
	}
	return b.makeOrder(f)
}

// makeFiles makes what the plan wants in the state directory.
func (b *box) makeFiles() error {
	for _, dir := range b.plan.scratchDirs {
		if b.plan.stagesScratch() {
			break
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return stateError(err)
		}
	}
	return b.hidePaths()
}

// hidePaths binds an empty file or directory over all that is to be hidden.
//
// A tmpfs of the kernel inside would hide a directory too, but by its name
// there: once another mount of the same directory, or the host, has renamed
// what leads to it, the kernel inside drops its mounts. A bind is in the
// gofer's mount namespace as well, and there it moves along.
func (b *box) hidePaths() error {
	for _, dir := range []bool{false, true} {
		if !slices.ContainsFunc(b.plan.hide, func(m sandbox.Mask) bool { return m.Dir == dir }) {
			continue
		}
		empty, err := b.makeEmpty(dir)
		if err != nil {
			return stateError(err)
		}
		b.opened = append(b.opened, empty)
		for _, m := range b.plan.hide {
			if m.Dir == dir {
				b.plan.bind(sandbox.Mount{Source: empty, Name: "nothing over " + m.Target, Target: m.Target, Dir: dir}, "ro", "nosuid", "nodev", "noexec")
			}
		}
	}
	return nil
}

// makeEmpty makes the empty file or directory. No user inside may read it, but
// an unprivileged gofer mounts only what it may read itself.
func (b *box) makeEmpty(dir bool) (*os.File, error) {
	name, read := filepath.Join(b.spec.StateDir, "empty"), os.FileMode(0o400)
	make := func() error { return os.WriteFile(name, nil, 0) }
	if dir {
		name, read = filepath.Join(b.spec.StateDir, "emptydir"), 0o500
		make = func() error { return os.Mkdir(name, 0) }
	}
	if err := make(); err != nil {
		return nil, err
	}
	if euid != 0 {
		if err := os.Chmod(name, read); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
}

func stateError(err error) error {
	return &sandbox.Error{
		Op: "prepare sandbox", Kind: sandbox.ErrUnavailable, Problem: "the state directory cannot be written", Cause: err,
		Hint: "free some disk space, or set CAISSON_STATE to a directory on another disk",
	}
}

// makeOrder writes down what the shim has to do.
func (b *box) makeOrder(f first) error {
	asked, err := b.wantChanges(f)
	if err != nil {
		return err
	}
	oci, err := json.Marshal(b.plan.oci)
	if err != nil {
		return err
	}
	b.order = &protocol.Order{ID: b.spec.ID, StateDir: b.spec.StateDir, Spec: oci, Flags: b.flags(), Memory: b.spec.Limits.Memory,
		StageScratch: b.plan.stagesScratch(), Live: b.plan.live, Changes: asked}
	if !b.memoryHeld && b.spec.Limits.Memory > 0 {
		b.order.KernelShare = protocol.KernelShare(b.spec.Limits.Memory)
	}
	if euid != 0 && f.user.UID != b.spec.User.UID {
		// Only the user's id is mapped here, so the processes that make the
		// sandbox must be that user; the kernel inside starts the agent as its
		// own root all the same.
		boot := oci
		creator := *b.plan.oci
		process := *creator.Process
		process.User = ociUser{UID: uint32(b.spec.User.UID), GID: uint32(b.spec.User.GID)}
		creator.Process = &process
		if b.order.Spec, err = json.Marshal(&creator); err != nil {
			return err
		}
		b.order.BootSpec = boot
	}
	return nil
}

// flags are gVisor's, for this sandbox.
func (b *box) flags() map[string]string {
	f := map[string]string{
		"root":                    filepath.Join(b.spec.StateDir, "g"),
		"platform":                "systrap",
		"network":                 "none",
		"rootless":                strconv.FormatBool(euid != 0),
		"ignore-cgroups":          "true", // we make and hold the group ourselves
		"overlay2":                b.plan.overlay,
		"host-uds":                "none",
		"host-fifo":               "none",
		"file-access":             "exclusive",
		"file-access-mounts":      "exclusive",
		"gofer-network-namespace": "new", // "null" leaves a mount behind on the host
		"oci-seccomp":             "false",
		"allow-suid":              strconv.FormatBool(b.spec.Sudo),
		"net-raw":                 "false",
		"host-settings":           "ignore", // advice for a log that is not read
		// gVisor would rather find its gofer and sentry as files on disk; we are them.
		"sidecar-usage-policy": "LEGACY_DEPRECATED_SLOW_EMBEDDED_FALLBACK",
	}
	if len(b.plan.live) > 0 { // the host may change mounted files while it runs
		f["file-access-mounts"] = "shared"
	}
	if b.debug != "" {
		f["debug"], f["debug-log"] = "true", b.debug+"/"
	}
	return f
}

// close ends the shim and removes what is left. It may be called twice. What does not end
// in time is an error, and left to the next sweep.
func (b *box) close() error {
	var errs []error
	if b.shim != nil {
		errs = append(errs, b.shim.end())
	}
	if b.group != nil {
		ctx := context.Background() // without a deadline each waits 5 s
		if err := b.group.Kill(ctx); err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, b.group.Remove(ctx))
		}
		b.group = nil
	}
	for _, f := range b.opened {
		f.Close()
	}
	b.opened = nil
	return errors.Join(errs...)
}
