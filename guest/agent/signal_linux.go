// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"os"
	"slices"
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
	late := time.Now().Add(2 * time.Second) // against a tree that is thawed from outside
	for {
		left := 0
		err := t.alive(p, func() error {
			members, groups := freeze(p.pid)
			for g := range groups {
				if g != p.pid {
					syscall.Kill(-g, syscall.SIGKILL)
				}
			}
			for pid, living := range members {
				if living && pid != p.pid && syscall.Kill(pid, syscall.SIGKILL) == nil {
					left++
				}
			}
			if left > 0 && time.Now().Before(late) {
				return nil
			}
			left = 0
			// The program itself last: while it lives its children are its own,
			// and while it is not reaped its pid is.
			syscall.Kill(-p.pid, syscall.SIGKILL)
			return syscall.Kill(p.pid, syscall.SIGKILL)
		})
		if err != nil || left == 0 {
			return err
		}
		time.Sleep(time.Millisecond) // they die when the scheduler gets to them
	}
}

// freeze stops a tree until it grows no more. It returns its members, true for
// those that live, and their process groups.
//
// Reading /proc never catches a process that forks and ends all the time: it
// has another pid by then. Signals to a group do, since the kernel lets no
// fork slip through them. A pass that meets a new pid, be it a dead one, is
// proof that something still runs, and is followed by another.
func freeze(root int) (members, groups map[int]bool) {
	members, groups = map[int]bool{root: true}, map[int]bool{root: true}
	syscall.Kill(-root, syscall.SIGSTOP)
	syscall.Kill(root, syscall.SIGSTOP)
	late := time.Now().Add(500 * time.Millisecond)
	for grew := true; grew && time.Now().Before(late); {
		grew = false
		for _, s := range belonging(members) {
			if _, known := members[s.pid]; !known {
				grew = true
				syscall.Kill(s.pid, syscall.SIGSTOP)
			}
			members[s.pid] = !s.dead
			// Every program has a session of its own, so a member's group holds
			// no other program.
			if !groups[s.group] && s.group > 1 && s.session > 1 {
				groups[s.group] = true
				syscall.Kill(-s.group, syscall.SIGSTOP)
			}
		}
	}
	return members, groups
}

// signalAll reaches every process inside but the agent.
func signalAll(s syscall.Signal) error {
	// Outside of a pid namespace of its own it would reach the host's.
	if os.Getpid() != 1 && !settled {
		return errors.New("the agent is not the sandbox's first process")
	}
	if err := syscall.Kill(-1, s); err != nil && err != syscall.ESRCH {
		return err
	}
	return nil
}

// stat is a process as /proc shows it.
type stat struct {
	pid, parent, group, session int
	dead                        bool // a zombie
}

// tree lists the living processes that belong to root, without root.
func tree(root int) []int {
	var pids []int
	for _, s := range belonging(map[int]bool{root: true}) {
		if s.pid != root && !s.dead {
			pids = append(pids, s.pid)
		}
	}
	return pids
}

// belonging lists the members of a tree that are still there, and what
// descends from them or is in a session or process group that one began.
func belonging(members map[int]bool) []stat {
	all := processes()
	in := make(map[int]bool)
	for pid := range members {
		in[pid] = true
	}
	for grew := true; grew; {
		grew = false
		for _, s := range all {
			if !in[s.pid] && s.pid > 1 && (in[s.parent] || in[s.group] || in[s.session]) {
				in[s.pid], grew = true, true
			}
		}
	}
	return slices.DeleteFunc(all, func(s stat) bool { return !in[s.pid] })
}

// processes reads /proc.
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
	if len(f) < 4 {
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
	return stat{pid, n[0], n[1], n[2], f[0][0] == 'Z' || f[0][0] == 'X'}, true
}
