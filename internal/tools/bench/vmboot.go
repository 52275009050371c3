// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/image"
	guestkernel "github.com/caisson-run/caisson/image/kernel"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
	"github.com/caisson-run/caisson/sandbox/process"
)

// timing is a took that can be told.
type timing struct{ Wall, CPU time.Duration }

func (t timing) took() took { return took{t.Wall, t.CPU} }

// machines boots virtual machines of an image with one program.
type machines struct {
	dir, on string
	driver  *microvm.Driver
	kernels *guestkernel.Store
	root    *image.Root
	rounds  int
	argv    []string // of a monitor
}

func newMachines(ctx context.Context, dir string) (_ *machines, err error) {
	m := &machines{dir: dir, on: "on KVM"}
	if m.kernels, err = importKernel(dir); err != nil {
		return nil, err
	}
	o := microvm.Options{Machine: microvm.Micro, Box: process.New(process.Options{KVM: true}), Kernels: filepath.Join(dir, guestkernel.Dir)}
	m.driver = microvm.New(o)
	caps, err := m.driver.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if caps.Unusable != "" {
		m.on, o.Emulated, o.Box = "emulated, since "+caps.Unusable, true, process.New(process.Options{})
		m.driver = microvm.New(o)
	}
	saved, err := (&stage{dir: dir}).smallImage(ctx, user{}, "/bin/true")
	if err != nil {
		return nil, err
	}
	ref, err := reference.Parse(saved)
	if err != nil {
		return nil, err
	}
	store, err := image.OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		return nil, err
	}
	info, err := store.Get(ctx, ref, image.PullOptions{})
	if err != nil {
		return nil, err
	}
	m.root, err = store.Root(ctx, info, image.RootOptions{EROFS: true})
	return m, err
}

func (m *machines) close() error {
	if m == nil || m.root == nil {
		return nil
	}
	m.root.Close()
	return os.RemoveAll(m.dir)
}

// round boots a machine, restores the one that was written down first, and boots a bare one
// with the same kernel, initial RAM disk, root and devices; every second time in another order.
func (m *machines) round(ctx context.Context) (t *machineTimes, err error) {
	t = &machineTimes{On: m.on}
	if m.argv == nil {
		if err := m.first(ctx); err != nil {
			return nil, err
		}
	}
	sides := []func() error{
		func() (err error) { t.Boot, err = m.begin(ctx, m.driver.Start); return err },
		func() (err error) { t.Restore, err = m.begin(ctx, m.restore); return err },
		func() (err error) { t.Bare, err = m.bare(ctx); return err },
	}
	if m.rounds++; m.rounds%2 == 0 {
		slices.Reverse(sides)
	}
	for _, side := range sides {
		err = errors.Join(err, side())
	}
	return t, err
}

// first boots the machine that is written down, and takes its monitor's command line.
func (m *machines) first(ctx context.Context) error {
	spec, err := m.spec()
	if err != nil {
		return err
	}
	defer os.RemoveAll(spec.StateDir)
	i, err := m.driver.Start(ctx, spec)
	if err != nil {
		return err
	}
	argv, err := argvOf(spec.ID)
	if err == nil {
		err = m.snapshot(ctx, i)
	}
	m.argv = argv
	return errors.Join(err, i.Destroy(ctx))
}

func (m *machines) written() string { return filepath.Join(m.dir, "snapshot") }

func (m *machines) snapshot(ctx context.Context, i sandbox.Instance) error {
	w, ok := i.(sandbox.Snapshotter)
	if !ok {
		return errors.New("its machines have no snapshots")
	}
	if err := os.Mkdir(m.written(), 0o700); err != nil {
		return err
	}
	return w.Snapshot(ctx, m.written(), true)
}

func (m *machines) restore(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	return sandbox.Driver(m.driver).(sandbox.Restorer).Restore(ctx, spec, m.written())
}

// begin measures a machine from its beginning to its agent's first answer.
func (m *machines) begin(ctx context.Context, how func(context.Context, *sandbox.Spec) (sandbox.Instance, error)) (timing, error) {
	spec, err := m.spec()
	if err != nil {
		return timing{}, err
	}
	defer os.RemoveAll(spec.StateDir)
	return costs(func() (end func() error, err error) {
		i, err := how(ctx, spec)
		if err != nil {
			return nil, err
		}
		return func() error { return i.Destroy(ctx) }, answered(ctx, i, spec)
	})
}

// answered waits for the agent's first answer.
func answered(ctx context.Context, i sandbox.Instance, spec *sandbox.Spec) error {
	conn, err := i.Dial(ctx)
	if err != nil {
		return err
	}
	c, err := guest.NewClient(conn, guest.Options{Limits: spec.Limits, User: spec.User})
	if err != nil {
		return err
	}
	return errors.Join(c.Health(ctx), c.Close())
}

// costs measures do: its time, and the processor time of all that it has started, until
// that was ended.
func costs(do func() (end func() error, err error)) (t timing, err error) {
	before := processorTimes()
	began := time.Now()
	end, err := do()
	t.Wall = time.Since(began)
	if end != nil {
		err = errors.Join(err, end())
	}
	t.CPU = processorTimes() - before
	return t, err
}

// processorTimes is what this process and its ended children have used.
func processorTimes() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// spec is a machine without scratch and mounts, in a state directory of its own.
func (m *machines) spec() (*sandbox.Spec, error) {
	s := &sandbox.Spec{
		ID: "sbx_bench" + rand.Text(), Root: m.root.Sandbox(), User: sandbox.DefaultUser(), Limits: sandbox.DefaultLimits(), Snapshots: true,
	}
	s.StateDir = filepath.Join(m.dir, "run", s.ID)
	if err := os.MkdirAll(s.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return s, nil
}
