// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
)

// signal delivers s to the scope of p.
func (t *table) signal(p *process, s syscall.Signal, scope wire.Scope) error {
	switch scope {
	case wire.Process:
		return t.alive(p, func() error { return syscall.Kill(p.pid, s) })
	case wire.Group:
		return t.alive(p, func() error { return signalGroup(p, s) })
	case wire.Tree:
		return t.signalTree(p, s)
	}
	return errors.New("no such scope")
}

// signalGroup reaches the program's process group, which its session began
// with. A job that a shell put into the terminal's foreground is another
// group, and is who a terminal's signals are for.
func signalGroup(p *process, s syscall.Signal) error {
	err := syscall.Kill(-p.pid, s)
	if p.terminal == nil {
		return err
	}
	if fg, e := foreground(p.terminal); e == nil && fg != p.pid && fg > 1 {
		if e := syscall.Kill(-fg, s); e == nil {
			return nil
		}
	}
	return err
}

// signalTree reaches the program, everything in its session or process group,
// and everything that descends from one of these. What was orphaned and left
// the session before is not found; signalAll finds it.
func (t *table) signalTree(p *process, s syscall.Signal) error {
	if s == syscall.SIGKILL {
		return t.killTree(p)
	}
	return t.alive(p, func() error {
		for _, pid := range tree(p.pid) {
			syscall.Kill(pid, s)
		}
		return syscall.Kill(p.pid, s)
	})
}

// killTree kills until nothing is left. Once is not enough: when the death of
// some orphans a process group, the kernel wakes its stopped members.
func (t *table) killTree(p *process) error {
	const passes = 2000 // about two seconds, against a tree that is thawed from outside
	for i := 0; ; i++ {
		left := 0
		err := t.alive(p, func() error {
			members := freeze(p.pid)
			delete(members, p.pid)
			left = len(members)
			for pid := range members {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			if left > 0 && i < passes {
				return nil
			}
			// The program itself last: while it lives its children are its own,
			// and while it is not reaped its pid is.
			err := syscall.Kill(p.pid, syscall.SIGKILL)
			for _, pid := range tree(p.pid) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			return err
		})
		if err != nil || left == 0 || i == passes {
			return err
		}
		time.Sleep(time.Millisecond) // they die when the scheduler gets to them
	}
}

// freeze stops a tree until it grows no more, and returns its members. A tree
// that is killed process by process could outgrow its killer.
func freeze(root int) map[int]bool {
	const passes = 64 // against a tree that thaws itself from outside
	stopped := map[int]bool{root: true}
	syscall.Kill(root, syscall.SIGSTOP)
	for range passes {
		grew := false
		for _, pid := range tree(root) {
			if !stopped[pid] {
				stopped[pid], grew = true, true
				syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		if !grew {
			break
		}
	}
	return stopped
}

// signalAll reaches every process inside but the agent.
func signalAll(s syscall.Signal) error {
	// Outside of a pid namespace of its own it would reach the host's.
	if os.Getpid() != 1 {
		return errors.New("the agent is not the sandbox's first process")
	}
	if err := syscall.Kill(-1, s); err != nil && err != syscall.ESRCH {
		return err
	}
	return nil
}

// stat is a process as /proc shows it.
type stat struct{ pid, parent, group, session int }

// tree lists the living processes that belong to root, without root.
func tree(root int) []int {
	all := processes()
	in := map[int]bool{root: true}
	for grew := true; grew; {
		grew = false
		for _, s := range all {
			if !in[s.pid] && s.pid > 1 && (in[s.parent] || s.group == root || s.session == root) {
				in[s.pid], grew = true, true
			}
		}
	}
	delete(in, root)
	pids := make([]int, 0, len(in))
	for pid := range in {
		pids = append(pids, pid)
	}
	return pids
}

// processes reads /proc; zombies are left out.
func processes() []stat {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var all []stat
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + n + "/stat")
		if err != nil {
			continue
		}
		if s, ok := parseStat(pid, b); ok {
			all = append(all, s)
		}
	}
	return all
}

// parseStat reads "pid (comm) state ppid pgrp session …". The command may hold
// anything, parentheses too, so the fields count from its last one.
func parseStat(pid int, b []byte) (stat, bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return stat{}, false
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 4 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return stat{}, false
	}
	var n [3]int
	for j := range n {
		v, err := strconv.Atoi(string(f[1+j]))
		if err != nil {
			return stat{}, false
		}
		n[j] = v
	}
	return stat{pid: pid, parent: n[0], group: n[1], session: n[2]}, true
}
