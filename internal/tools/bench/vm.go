// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	guestkernel "github.com/caisson-run/caisson/image/kernel"
)

// machineArg makes this program one that boots a virtual machine and restores it, and
// boots one on a bare QEMU, for each line that it reads.
const machineArg = "machines"

// machineTimes is what it says of one line.
type machineTimes struct {
	On                  string // KVM, or that the processor is emulated
	Boot, Restore, Bare timing
	Error               string `json:",omitempty"`
}

// machineRows measure the virtual machines' level. Each of them is in a program that
// carries the agent, as caisson does: it is what the machines run.
func (s *stage) machineRows() []bench {
	return []bench{
		{"virtual machine, start to its agent's first answer, beside a bare QEMU with the same kernel", func(ctx context.Context) row {
			return s.machines(ctx, "≤ 1.15", "the other side is QEMU with the same devices, and ends at the word of the guest's first process", func(t *machineTimes) (ours, theirs took) { return t.Boot.took(), t.Bare.took() })
		}},
		{"virtual machine restored, beside its start", func(ctx context.Context) row {
			return s.machines(ctx, "≤ 0.10", "the other side is its start", func(t *machineTimes) (ours, theirs took) { return t.Restore.took(), t.Boot.took() })
		}},
	}
}

func (s *stage) machines(ctx context.Context, goal, note string, sides func(*machineTimes) (ours, theirs took)) row {
	no := func(err error) row { return row{goal: goal, notes: []string{"not measured: " + err.Error()}} }
	u, dir := s.users[0], s.path("machines")
	path, err := filepath.Abs(s.o.carrying)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		_, err = importKernel(dir)
	}
	if err != nil {
		return no(err)
	}
	program, err := s.embed(ctx, u, path, machineArg, dir)
	if err != nil {
		return no(err)
	}
	p, on := &pairs{}, ""
	for range s.o.rounds {
		var t machineTimes
		if err := program.ask(&t); err != nil {
			return no(err)
		}
		if t.Error != "" {
			return no(errors.Join(errors.New(t.Error), program.end()))
		}
		ours, theirs := sides(&t)
		p.ours, p.theirs, on = append(p.ours, ours), append(p.theirs, theirs), t.On
	}
	r := p.row(goal)
	r.who = u.name
	r.notes = append(r.notes, note, on)
	if err := program.end(); err != nil {
		r.notes = append(r.notes, err.Error())
	}
	return r
}

// bootMachines is that program, with its files in dir.
func bootMachines(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	m, err := newMachines(ctx, dir)
	to := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		t := &machineTimes{}
		if err == nil {
			t, err = m.round(ctx)
		}
		if err != nil {
			t = &machineTimes{Error: err.Error()}
		}
		if err := to.Encode(t); err != nil {
			return err
		}
	}
	return m.close()
}

// importKernel takes the kernel that tests boot, or this host's own.
func importKernel(dir string) (*guestkernel.Store, error) {
	store := guestkernel.NewStore(filepath.Join(dir, guestkernel.Dir))
	if k, err := store.Newest(); err == nil && k != nil {
		return store, nil
	}
	var o guestkernel.ImportOptions
	if from := os.Getenv("CAISSON_GUEST_KERNEL"); from != "" {
		files, _ := filepath.Glob(from + "/boot/vmlinuz-*")
		modules, _ := filepath.Glob(from + "/lib/modules/*")
		if len(files) != 1 || len(modules) != 1 {
			return nil, fmt.Errorf("CAISSON_GUEST_KERNEL: %s has not one kernel", from)
		}
		o = guestkernel.ImportOptions{File: files[0], Modules: modules[0]}
	}
	_, err := store.Import(o)
	return store, err
}
