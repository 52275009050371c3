// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// ownNamespaces are those that each sandbox of the process level has of its own, but for
// its user namespace: os/exec copies the page tables of this process for that one.
const ownNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// alone is the bare program in namespaces of its own, and a control group with the
// default limits that is made before it and removed after it. No process is ever in the
// group; there is no other root, no mount, no map of users, no filter and no init. It is
// what the kernel takes at least for what no two runs share, and no sandbox.
func (l *level) alone(ctx context.Context) (_ took, err error) {
	host, limits := cgroup.Current(), sandbox.DefaultLimits()
	if host.Why != "" {
		return took{}, errors.New(host.Why)
	}
	g, err := host.Create(fmt.Sprintf("caisson-bench%d", l.n.Add(1)), cgroup.Limits{Memory: limits.Memory, CPUs: limits.CPUs, Pids: limits.Processes})
	if err != nil {
		return took{}, err
	}
	defer func() { err = errors.Join(err, g.Remove(ctx)) }()
	cmd := exec.CommandContext(ctx, l.argv[0], l.argv[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: ownNamespaces}
	return took{}, cmd.Run()
}

// floors are the rows that say how near the goals of the process level can be come to on
// this machine.
func (s *stage) floors(argv ...string) []bench {
	of := s.besideBare("namespaces and control group alone", "", argv, func(l *level) once { return clocked(l.alone) })
	return []bench{of, s.rateOf("namespaces and control group alone", "", argv, func(l *level) once { return clocked(atOnceOf(l.alone)) })}
}
