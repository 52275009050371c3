// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/agent/interpreter"
	"github.com/caisson-run/caisson/guest/wire"
	vocabulary "github.com/caisson-run/caisson/interpreter"
)

// maxCell bounds the request of a cell, in bytes: JSON may need six for one of its code.
const maxCell = 6*vocabulary.MaxCode + maxRequest

// serveContext makes a context.
func (a *Agent) serveContext(r *http.Request, q *wire.ContextRequest) (*vocabulary.Context, error) {
	u, err := a.kernelUser(r, q.Limits)
	if err != nil {
		return nil, err
	}
	c, err := a.contexts.Create(u, q.ContextOptions)
	if err != nil {
		return nil, contextError(err)
	}
	return &c, nil
}

func (a *Agent) serveContextList(r *http.Request, _ *struct{}) (*wire.ContextList, error) {
	u, err := a.kernelUser(r, wire.Limits{})
	if err != nil {
		return nil, err
	}
	return &wire.ContextList{Contexts: a.contexts.List(u)}, nil
}

// atContext serves what is done to one context.
func (a *Agent) atContext(do func(u interpreter.User, id string) error) func(*http.Request, *wire.ContextRef) (*struct{}, error) {
	return func(r *http.Request, q *wire.ContextRef) (*struct{}, error) {
		u, err := a.kernelUser(r, wire.Limits{})
		if err != nil {
			return nil, err
		}
		if err := do(u, q.ID); err != nil {
			return nil, contextError(err)
		}
		return &struct{}{}, nil
	}
}

// serveCell runs a cell. It is interrupted when its request ends before.
func (a *Agent) serveCell(w http.ResponseWriter, r *http.Request) {
	x, err := a.prepareCell(w, r)
	if err != nil {
		writeError(w, asConnect(err))
		return
	}
	out := newWriter(w, wire.EventsType)
	out.mu.Lock()
	out.send(nil) // that it was taken
	out.mu.Unlock()
	x.Run(r.Context(), interpreter.Sink{
		Event: func(e *vocabulary.Event) error {
			b, err := json.Marshal(e)
			if err != nil {
				return err
			}
			out.mu.Lock()
			defer out.mu.Unlock()
			return out.send(append(b, '\n'))
		},
		Abort: func() { out.control.SetWriteDeadline(time.Unix(1, 0)) },
	})
}

func (a *Agent) prepareCell(w http.ResponseWriter, r *http.Request) (*interpreter.Execution, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCell))
	if err != nil {
		return nil, &connectError{codeExhausted, err.Error()}
	}
	var q wire.CellRequest
	if err := json.Unmarshal(b, &q); err != nil {
		return nil, &connectError{codeInvalid, err.Error()}
	}
	u, err := a.kernelUser(r, q.Limits)
	if err != nil {
		return nil, err
	}
	x, err := a.contexts.Prepare(u, q.Cell)
	if err != nil {
		return nil, contextError(err)
	}
	return x, nil
}

// contextError finds the code for an error of package interpreter.
func contextError(err error) error {
	for kind, code := range map[error]string{
		interpreter.ErrNotFound: codeNotFound, interpreter.ErrInvalid: codeInvalid, interpreter.ErrExists: codeInvalid,
		interpreter.ErrUnsupported: codeUnimplemented, interpreter.ErrExhausted: codeExhausted, interpreter.ErrFailed: codePrecondition,
	} {
		if errors.Is(err, kind) {
			return &connectError{code, err.Error()}
		}
	}
	var fault *startError
	if errors.As(err, &fault) {
		switch fault.failure {
		case wire.NotFound, wire.NotExecutable:
			return &connectError{codeUnimplemented, fault.message}
		case wire.Failed:
			return &connectError{codeInternal, fault.message}
		}
		return &connectError{codeInvalid, fault.message}
	}
	return err
}

// kernelUser is who a request's kernels run as.
type kernelUser struct {
	agent  *Agent
	user   user
	limits wire.Limits
}

func (a *Agent) kernelUser(r *http.Request, l wire.Limits) (*kernelUser, error) {
	u, err := a.user(r)
	if err != nil {
		return nil, err
	}
	return &kernelUser{a, u, l}, nil
}

func (k *kernelUser) ID() uint32              { return k.user.uid }
func (k *kernelUser) As(f func() error) error { return k.user.as(f) }
func (k *kernelUser) Environ(own map[string]string) []string {
	return k.agent.settings.environment(k.user, own)
}

// Home is where processes start that do not say.
func (k *kernelUser) Home() string {
	if dir := k.agent.settings.directory(); dir != "" {
		if p, err := k.user.path(dir); err == nil {
			return p
		}
	}
	return k.user.home
}

// Start starts a kernel by the way of every other program.
func (k *kernelUser) Start(p interpreter.Program) (interpreter.Process, error) {
	r := &wire.StartRequest{
		Argv: p.Argv, Env: p.Env, Dir: p.Dir,
		UID: k.user.uid, GID: k.user.gid, NewPrivileges: k.agent.options.Sudo, Limits: k.limits,
	}
	kills := k.agent.oomKills()
	started, err := k.agent.spawnKernel(r, p)
	if err != nil {
		return nil, err
	}
	return &kernelProcess{k.agent, started, kills}, nil
}

// spawnKernel starts a program with the files that it is given.
func (a *Agent) spawnKernel(r *wire.StartRequest, p interpreter.Program) (*process, error) {
	if err := r.Check(); err != nil {
		return nil, &startError{failure: wire.Refused, message: err.Error()}
	}
	c, err := newChild(r)
	if err == nil && a.options.Filter {
		c.filter, err = untrusted()
	}
	if err != nil {
		return nil, err
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			syscall.Close(fd)
		}
	}()
	for _, f := range append([]*os.File{p.Stdin, p.Stdout, p.Stderr}, p.Files...) {
		fd, err := duplicateAbove(f)
		if err != nil {
			return nil, failed(err)
		}
		fds = append(fds, fd)
	}
	c.stdio, c.further = [3]int(fds[:3]), fds[3:]
	started := &process{}
	if err := a.launch(c, started); err != nil {
		return nil, err
	}
	return started, nil
}

// duplicateAbove leaves the mode of f as it is, which Fd would not.
func duplicateAbove(f *os.File) (fd int, err error) {
	if e := control(f, func(n uintptr) { fd, err = above(int(n)) }); e != nil {
		return -1, e
	}
	return fd, err
}

// oomKills is how many processes the memory limit has killed, where a file says so.
func (a *Agent) oomKills() uint64 {
	var n uint64
	for _, f := range oomFiles {
		kills, _ := oomKills(f)
		n += kills
	}
	return n
}

// kernelProcess is a kernel that was started.
type kernelProcess struct {
	agent   *Agent
	process *process
	kills   uint64 // of the memory limit, before
}

func (p *kernelProcess) Interrupt() error {
	return p.agent.table.signal(p.process, syscall.SIGINT, wire.Group)
}

func (p *kernelProcess) Kill() error {
	return p.agent.table.signal(p.process, syscall.SIGKILL, wire.Tree)
}

func (p *kernelProcess) Done() <-chan struct{}      { return p.process.done }
func (p *kernelProcess) Status() syscall.WaitStatus { return p.process.status }

func (p *kernelProcess) OutOfMemory() bool {
	ws := p.process.status
	return ws.Signaled() && ws.Signal() == syscall.SIGKILL && p.agent.oomKills() > p.kills
}
