// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

// Inside is a running persistent sandbox that a caller has entered. Its methods run no
// program and change no file, so that none of them is a call in the record: a program is
// [Handle.Start] and [Handle.Exec], a file is [Handle.Files].
type Inside struct {
	// User is whom programs run as by default, Dir where.
	User sandbox.User
	Dir  string
	// Env is the environment of every program, KEY=value, sorted: what the level
	// and the policy give, and what the sandbox was made with.
	Env []string
	// Gone is closed when the sandbox ends or is paused. What is still asked of it has
	// lost its other end then.
	Gone <-chan struct{}

	agent *guest.Client
	sudo  bool // its programs may be root
}

func (in *running) show(client *guest.Client) *Inside {
	return &Inside{
		agent: client, User: in.env.Spec.User, Dir: in.env.Dir, Env: slices.Clone(in.env.Exec.Env), Gone: in.gone.Done(),
		sudo: in.env.Spec.Sudo,
	}
}

// enter finds the sandbox, wakes it where it is to be woken, and counts the caller as its
// user until unuse.
func (h *Handle) enter(ctx context.Context) (*managed, *running, *Inside, error) {
	l, err := h.find(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	for range 2 {
		if in, client := l.use(); client != nil {
			return l, in, in.show(client), nil
		}
		if err := l.ready(ctx, h.key); err != nil {
			return nil, nil, nil, err
		}
	}
	return nil, nil, nil, sandbox.Errorf(sandbox.ErrConflict, "sandbox "+h.id, "it was paused again at once, or its agent is lost again")
}

// ready makes a sandbox ready that is paused, or on its way to or from it, or whose
// agent is lost. Where that fails, it has failed for all who wait by then: each try
// may take its time, and who wants to end the sandbox waits in the same row.
func (l *managed) ready(ctx context.Context, k *Key) error {
	l.mu.Lock()
	before := l.failed.n
	l.mu.Unlock()
	held, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer held.unlock()
	l.mu.Lock()
	failed := l.failed
	l.mu.Unlock()
	if failed.n != before {
		return failed.last
	}
	if err = held.wake(ctx, k, false); err == nil {
		err = held.reconnect(ctx)
	}
	if err != nil {
		l.mu.Lock()
		l.failed = attempts{failed.n + 1, err}
		l.mu.Unlock()
	}
	return err
}

// use counts an action that begins; both are nil when the sandbox does not run, or
// its agent is lost.
func (l *managed) use() (*running, *guest.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.in == nil || l.in.client.Lost() != nil {
		return nil, nil
	}
	l.active.calls++
	l.active.last = l.b.o.Clock.Now()
	return l.in, l.in.client
}

// unuse counts one that ended.
func (l *managed) unuse() {
	l.mu.Lock()
	l.active.calls--
	l.active.last = l.b.o.Clock.Now()
	idles := l.active.calls == 0 && l.rec.Idle > 0
	l.coolLater()
	l.mu.Unlock()
	if idles {
		l.arm()
	}
}

// Enter enters the sandbox, and resumes it first when it is paused and was made so. The caller
// calls leave when it is done; until then the sandbox is in use.
func (h *Handle) Enter(ctx context.Context) (_ *Inside, leave func(), _ error) {
	l, _, in, err := h.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	return in, sync.OnceFunc(l.unuse), nil
}

// Variables are the sandbox's own variables, by name.
func (in *Inside) Variables(ctx context.Context) (map[string]string, error) {
	return in.agent.Env(ctx)
}

// Metrics is what the kernel inside counts now: the guest's word.
func (in *Inside) Metrics(ctx context.Context) (sandbox.Metrics, error) { return in.agent.Metrics(ctx) }

// Dial opens a connection to a port inside.
func (in *Inside) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	return in.agent.DialPort(ctx, port)
}

// RoundTripHTTP2 sends a request to a port inside whose program speaks HTTP/2 without TLS.
// The context of r bounds the answer and its body.
func (in *Inside) RoundTripHTTP2(port uint16, r *http.Request) (*http.Response, error) {
	return in.agent.RoundTripHTTP2(port, r)
}
