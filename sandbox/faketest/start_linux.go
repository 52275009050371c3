// SPDX-License-Identifier: Apache-2.0

package faketest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// agentFD is where the first process has the agent's program.
const agentFD = 5

// instance is a living fake sandbox: the real agent as its first process.
type instance struct {
	d      *Driver
	id     string
	cmd    *exec.Cmd
	stream *os.File
	opener *wire.Opener
	meter  *meter

	ended chan struct{}
	once  sync.Once
}

var _ sandbox.Pauser = (*instance)(nil)

// Start makes a living sandbox with the guest agent as its first process, when
// Agent says that the fake has one.
func (d *Driver) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	if !d.Agent {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "start sandbox", "the fake level has no guest agent")
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := sandbox.CheckID(spec.ID); err != nil {
		return nil, err
	}
	mark, u := wire.NewMark(), spec.User
	ex := &sandbox.Exec{
		Argv: []string{guest.AgentArgv0, "-user", fmt.Sprintf("%d:%d:%s:%s", u.UID, u.GID, u.Name, u.Home)},
		Env:  []string{agent.MarkVariable + "=" + mark.String()}, Dir: "/",
	}
	if spec.Sudo {
		ex.Argv = append(ex.Argv, "-sudo")
	}
	if d.Begun != nil {
		d.Begun(spec, ex)
	}
	program, err := guest.OpenAgent()
	if err != nil {
		return nil, err
	}
	defer program.Close()
	tell, hear, cmd, err := d.command(spec, ex, program)
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tell.Close()
		hear.Close()
		return nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "agent")
	cmd.Stdin = theirs
	err = unix.SetNonblock(fds[0], true)
	if err == nil {
		err = cmd.Start()
	}
	theirs.Close()
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	i := &instance{d: d, id: spec.ID, cmd: cmd, stream: os.NewFile(uintptr(fds[0]), "agent"), ended: make(chan struct{})}
	if err != nil {
		hear.Close()
		i.stream.Close()
		return nil, &sandbox.Error{Op: "start fake sandbox", Kind: sandbox.ErrUnavailable, Problem: "cannot start the first process", Cause: err}
	}
	// The pipe closes when the agent is executed, or brings what went wrong.
	var end ending
	if json.NewDecoder(io.LimitReader(hear, 4096)).Decode(&end) == nil {
		err = sandbox.Errorf(sandbox.ErrInvalid, "start fake sandbox", "%s", end.Fault)
	}
	hear.Close()
	if err != nil {
		cmd.Wait()
		i.stream.Close()
		return nil, err
	}
	i.opener = wire.NewOpener(i.stream, mark)
	i.meter = newMeter(cmd.Process.Pid, spec, ex)
	d.count(1)
	go i.follow()
	return i, nil
}

// follow holds the memory limit and waits for the end.
func (i *instance) follow() {
	gone, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		i.meter.loop(context.Background(), gone, func() { i.cmd.Process.Kill() })
	}()
	i.cmd.Wait()
	close(gone)
	<-over
	i.d.count(-1)
	close(i.ended)
}

func (i *instance) ID() string { return i.id }

func (i *instance) Dial(ctx context.Context) (net.Conn, error) { return i.opener.Open(ctx) }

func (i *instance) Usage(context.Context) (sandbox.Usage, error) { return i.meter.read(), nil }

func (i *instance) Ended() <-chan struct{} { return i.ended }

func (i *instance) Limit() sandbox.LimitName {
	i.meter.mu.Lock()
	defer i.meter.mu.Unlock()
	return i.meter.limit
}

// Pause stops the agent and all that descends from it, which has no reason to run
// away from a fake.
func (i *instance) Pause(context.Context) error { return i.signalAll(syscall.SIGSTOP) }

// Resume lets all of them go on.
func (i *instance) Resume(context.Context) error { return i.signalAll(syscall.SIGCONT) }

// signalAll signals the agent and all that descends from it until there is no
// new one. Orphans are the agent's: it is the first process of its namespace.
func (i *instance) signalAll(s syscall.Signal) error {
	told := map[int]bool{}
	for {
		n := len(told)
		if err := signalTree(i.cmd.Process.Pid, s, told); err != nil || len(told) == n {
			return err
		}
	}
}

// signalTree signals pid and what descends from it, but those who were told.
func signalTree(pid int, s syscall.Signal, told map[int]bool) error {
	if !told[pid] {
		told[pid] = true
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // it may have ended
		for child := range strings.FieldsSeq(string(text)) {
			n, err := strconv.Atoi(child)
			if err == nil {
				err = signalTree(n, s, told)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Destroy kills the first process, and with it everything in its namespace.
func (i *instance) Destroy(context.Context) error {
	i.cmd.Process.Kill()
	<-i.ended
	i.once.Do(func() { i.stream.Close() })
	return nil
}

// becomeAgent turns the first process, with its world built, into the agent.
func (w *initMessage) becomeAgent(root string) ending {
	syscall.CloseOnExec(agentFD)
	if err := syscall.Chroot(root); err != nil {
		return ending{Fault: "chroot: " + err.Error()}
	}
	os.Chdir("/")
	for fd := 3; fd < 5+1+len(w.MountFD)+1; fd++ {
		syscall.CloseOnExec(fd) // the owner sees the pipe's end
	}
	err := syscall.Exec("/proc/self/fd/"+itoa(agentFD), w.Argv, w.Env)
	return ending{Fault: "start the agent: " + err.Error()}
}
