// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// process is one program that the agent started.
type process struct {
	pid      int
	id       string
	terminal *os.File
	stdin    *os.File // nil when it is /dev/null; the terminal when there is one

	input sync.Mutex // held while stdin is written to

	done   chan struct{} // closed when it has ended and was reaped
	status syscall.WaitStatus
}

// table holds the running programs and reaps everything: the agent is the
// parent of last resort in its sandbox.
type table struct {
	mu sync.Mutex // held over fork and register, and over wait and forget, so that a pid in running is no other's
	// running is keyed by pid.
	running map[int]*process
	oom     *oomWatch // or nil
}

func newTable() *table { return &table{running: make(map[int]*process)} }

var (
	errGone      = errors.New("there is no such process")
	errDuplicate = errors.New("a program with this id runs already")
)

// start forks c and registers p.
func (t *table) start(c *child, p *process) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.id != "" {
		for _, q := range t.running {
			if q.id == p.id {
				return errDuplicate
			}
		}
	}
	syscall.ForkLock.Lock()
	pid, errno := c.start()
	syscall.ForkLock.Unlock()
	if errno != 0 {
		return errno
	}
	p.pid = pid
	p.done = make(chan struct{})
	t.running[pid] = p
	return nil
}

// reap waits for every child, the orphans that fell to the agent too, until
// stop is closed. There must be no other waiter in the program.
func (t *table) reap(stop <-chan struct{}) {
	died := make(chan os.Signal, 1) // one is enough: every death before it is reaped
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	for {
		for t.reapOne() {
		}
		select {
		case <-died:
		case <-stop:
			return
		}
	}
}

func (t *table) reapOne() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ws syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
	if err == syscall.EINTR {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	if ws.Signaled() && ws.Signal() == syscall.SIGKILL {
		t.oom.look()
	}
	if p := t.running[pid]; p != nil {
		delete(t.running, pid)
		p.status = ws
		close(p.done)
	}
	return true
}

// find returns the first running process for which match is true, or nil.
func (t *table) find(match func(*process) bool) *process {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.running {
		if match(p) {
			return p
		}
	}
	return nil
}

// alive calls f while p cannot be reaped, so that its pid is p's. It returns
// errGone when p has ended.
func (t *table) alive(p *process, f func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[p.pid] != p {
		return errGone
	}
	return f()
}
