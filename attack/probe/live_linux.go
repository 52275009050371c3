// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// attempt is how one case is tried. alone runs it in a process of its own, which
// then stays: it changes what that process is, or may kill it.
type attempt struct {
	id    string
	do    func(*prober)
	alone *syscall.SysProcAttr
}

// live makes all attempts, says that it is ready to be looked at, and stays
// until its input ends.
func live(text string) int {
	p := &prober{}
	if err := json.Unmarshal([]byte(text), &p.Config); err != nil {
		return 125
	}
	say(Try{Case: CaseStart})
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		return 125
	}
	ends, keep, err := os.Pipe()
	if err != nil {
		return 125
	}
	defer keep.Close() // the children end with it
	for _, a := range attempts() {
		if len(p.Only) > 0 && !slices.Contains(p.Only, a.id) {
			continue
		}
		p.attempt(a, text, ends)
	}
	say(Try{Case: CaseReady})
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(p)
	return 0
}

// longest is how long one case may take: what hangs keeps no other from being
// tried.
const longest = 10 * time.Second

// attempt tries one case.
func (p *prober) attempt(a attempt, text string, ends *os.File) {
	one := &prober{Config: p.Config, id: a.id}
	p.all = append(p.all, one) // holds what it gets
	done := make(chan struct{})
	go func() {
		defer close(done)
		if a.alone != nil {
			one.apart(a, text, ends)
		} else {
			a.do(one)
		}
	}()
	select {
	case <-done:
	case <-time.After(longest):
		one.try("end within "+longest.String(), os.ErrDeadlineExceeded)
	}
}

// apart starts an attempt as a process of its own and waits until it has made
// it. Its input ends when this process does.
func (p *prober) apart(a attempt, text string, ends *os.File) {
	done, theirs, err := os.Pipe()
	if err != nil {
		p.try("make a pipe", err)
		return
	}
	defer done.Close()
	cmd := exec.Command(os.Args[0], Word, modeChild, a.id, text)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = ends, os.Stdout, os.Stderr, []*os.File{theirs}
	attr := *a.alone
	cmd.SysProcAttr = &attr
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		p.try("start in a new namespace", err)
		if a.alone.Cloneflags == 0 {
			return
		}
		// Without it the attempt itself may still work.
		done, theirs, err = os.Pipe()
		if err != nil {
			return
		}
		defer done.Close()
		cmd = exec.Command(os.Args[0], Word, modeChild, a.id, text)
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = ends, os.Stdout, os.Stderr, []*os.File{theirs}
		err = cmd.Start()
		theirs.Close()
		if err != nil {
			p.try("start a process", err)
			return
		}
	}
	_, _ = io.Copy(io.Discard, done)
	go func() { _ = cmd.Wait() }()
}

// child is such a process.
func child(id, text string) int {
	p := &prober{id: id}
	if err := json.Unmarshal([]byte(text), &p.Config); err != nil {
		return 125
	}
	for _, a := range attempts() {
		if a.id == id {
			a.do(p)
		}
	}
	os.NewFile(3, "done").Close()
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(p)
	return 0
}
