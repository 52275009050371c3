// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// echo is the program of the first-byte row.
var echo = []string{"/bin/echo", "x"}

// firstByte measures the driver alone, called from this process as a program
// that embeds caisson would: from the call of Run until the first byte of the
// program arrives. The root filesystem is made before, as a server would hold
// it; the sandbox's own directory counts.
func (s *stage) firstByte(ctx context.Context) row {
	u := s.users[0]
	root, err := image.Host(ctx, image.HostOptions{Cache: s.path("images"), Targets: targets()})
	if err != nil {
		return row{notes: []string{err.Error()}}
	}
	defer root.Close()
	d, n := gvisor.New(gvisor.Options{}), 0
	p := interleave(ctx, s.o.pairs,
		func(ctx context.Context) (took, error) {
			n++
			return s.driverFirstByte(ctx, d, root, fmt.Sprintf("sbx_bench%011d", n))
		},
		func(ctx context.Context) (took, error) { return s.runscFirstByte(ctx, u) })
	r := p.row(firstByteGoal)
	r.who = u.name
	return r
}

const firstByteGoal = "≤ 60 ms where runsc takes 140 (0.43)"

// scratch is what the session gives every sandbox.
func scratch() []sandbox.Scratch {
	return []sandbox.Scratch{
		{Target: "/home/user"},
		{Target: "/tmp", Size: sandbox.DefaultLimits().Tmp, Sticky: true},
		{Target: "/dev/shm", Size: 64 << 20, Sticky: true, Memory: true},
	}
}

func targets() (list []image.Target) {
	for _, sc := range scratch() {
		list = append(list, image.Target{Path: sc.Target, Dir: true})
	}
	return list
}

func (s *stage) driverFirstByte(ctx context.Context, d *gvisor.Driver, root *image.Root, id string) (_ took, err error) {
	began := time.Now()
	state := s.path(id)
	if err := os.Mkdir(state, 0o700); err != nil {
		return took{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(state)) }()
	var first arrival
	res, err := d.Run(ctx, &sandbox.Spec{
		ID: id, Root: root.Sandbox(), Scratch: scratch(), User: sandbox.DefaultUser(), Limits: sandbox.DefaultLimits(), StateDir: state,
	}, &sandbox.Exec{Argv: echo, Dir: "/home/user", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &first})
	switch {
	case err != nil:
		return took{}, fmt.Errorf("driver: %w", err)
	case res.Status != sandbox.StatusSuccess || first.at.IsZero():
		return took{}, fmt.Errorf("driver: %s ended with %s and printed nothing", echo[0], res.Status)
	}
	return took{wall: first.at.Sub(began)}, nil
}

// arrival is a writer that notes when the first byte came.
type arrival struct {
	at   time.Time
	once sync.Once
}

func (a *arrival) Write(b []byte) (int, error) {
	if len(b) > 0 {
		a.once.Do(func() { a.at = time.Now() })
	}
	return len(b), nil
}

func (s *stage) runscFirstByte(ctx context.Context, u user) (took, error) {
	return s.untilFirstByte(func(ctx context.Context) *exec.Cmd { return s.runscDo(ctx, u, echo...) })(ctx)
}

// untilFirstByte runs a command to its end, and measures until it has written something.
func (s *stage) untilFirstByte(command func(context.Context) *exec.Cmd) once {
	return func(ctx context.Context) (took, error) {
		cmd := command(ctx)
		var stderr bytes.Buffer
		var first arrival
		cmd.Stdout, cmd.Stderr = io.Writer(&first), &stderr
		began := time.Now()
		if err := cmd.Run(); err != nil {
			return took{}, failure(cmd, err, stderr.String())
		}
		if first.at.IsZero() {
			return took{}, fmt.Errorf("%s printed nothing", cmd.Path)
		}
		return took{wall: first.at.Sub(began)}, nil
	}
}
