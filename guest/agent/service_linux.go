// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/envd"
)

const (
	// exitKept is how long the end of a process can still be learned by Connect,
	// and exitsKept of how many.
	exitKept  = 30 * time.Second
	exitsKept = 256
)

// service is a process that process.Process started. Unlike a program of our
// own exec it goes on without a listener. What it writes then is thrown away.
type service struct {
	*process
	config envd.ProcessConfig
	tag    string

	// told is closed when it was told to end: what it left behind may hold its
	// output open for ever, and is not waited for then.
	told    chan struct{}
	tellOne sync.Once
	// over is closed when it has ended and everything that it wrote was
	// delivered; exit says how.
	over chan struct{}
	exit wire.ExitEvent

	mu        sync.Mutex
	listeners []listener
	expired   bool      // its time was over
	ended     time.Time // when over was closed
}

// listener hears what becomes of a process. Its calls come from several
// goroutines.
type listener interface {
	// output takes what was written; an error means that there is no listener
	// any more. b is the caller's.
	output(k wire.Kind, b []byte) error
	// alive says that nothing has happened.
	alive()
	// idle is how long there was nothing to hear.
	idle() time.Duration
	// hangUp makes output fail from now on, and returns when no call of it is
	// under way.
	hangUp()
}

// tell says that the process was told to end.
func (s *service) tell() { s.tellOne.Do(func() { close(s.told) }) }

// subscribe adds a listener. It hears what is written from now on.
func (s *service) subscribe(l listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners[:len(s.listeners):len(s.listeners)], l)
}

func (s *service) leave(l listener) {
	l.hangUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest []listener
	for _, other := range s.listeners {
		if other != l {
			rest = append(rest, other)
		}
	}
	s.listeners = rest
}

// deliver hands output to everybody who listens. One who is slow holds the
// process back, and the others with it; one who is gone is left out.
func (s *service) deliver(k wire.Kind, b []byte) {
	s.mu.Lock()
	all := s.listeners // is replaced, never changed
	s.mu.Unlock()
	for _, l := range all {
		l.output(k, b) // a listener that is gone leaves by itself
	}
}

// follow copies the output until its end, and then knows the process's.
func (s *service) follow(o output) {
	cut := make(chan struct{}) // it was told to end, and has
	go func() {
		select {
		case <-s.told:
			<-s.done
			close(cut)
		case <-s.over:
		}
	}()
	var copying sync.WaitGroup
	copy := func(k wire.Kind) func([]byte) error {
		return func(b []byte) error { s.deliver(k, b); return nil }
	}
	copying.Go(func() { drain(o.stdout, cut, s.done, copy(wire.Stdout)) })
	if o.stderr != nil {
		copying.Go(func() { drain(o.stderr, cut, s.done, copy(wire.Stderr)) })
	}
	copying.Wait()
	<-s.done
	s.closeInput()
}

// listen gives l what becomes of the process until its end, which it returns,
// or until ctx ends.
func (s *service) listen(ctx context.Context, l listener, every time.Duration) (wire.ExitEvent, bool) {
	defer s.leave(l)
	quiet := time.NewTimer(every)
	defer quiet.Stop()
	for {
		select {
		case <-s.over:
			return s.exit, true
		case <-ctx.Done():
			return wire.ExitEvent{}, false
		case <-quiet.C:
			next := every - l.idle()
			if next <= 0 {
				l.alive()
				next = every
			}
			quiet.Reset(next)
		}
	}
}

// services are the processes that can be selected.
type services struct {
	mu   sync.Mutex
	live []*service
	past []*service // the latest last
}

func (a *services) add(s *service) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// A late Connect must not get the end of another with this pid or tag.
	var past []*service
	for _, old := range a.past {
		if old.pid != s.pid && (s.tag == "" || old.tag != s.tag) {
			past = append(past, old)
		}
	}
	a.past = past
	a.live = append(a.live, s)
}

// retire keeps the end of s for a while.
func (a *services) retire(s *service, exit wire.ExitEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, other := range a.live {
		if other == s {
			a.live = append(a.live[:i:i], a.live[i+1:]...)
			break
		}
	}
	s.mu.Lock()
	exit.Expired = s.expired
	s.ended = time.Now()
	s.mu.Unlock()
	s.exit = exit
	close(s.over)
	if a.past = append(a.past, s); len(a.past) > exitsKept {
		a.past = a.past[len(a.past)-exitsKept:]
	}
}

// find returns the process that a selector means, one that has ended only if
// late is set.
func (a *services) find(q envd.ProcessSelector, late bool) (*service, error) {
	if q.PID == 0 && q.Tag == "" {
		return nil, &connectError{codeUnimplemented, "the request selects no process"}
	}
	is := func(s *service) bool {
		if q.PID != 0 {
			return s.pid == q.PID
		}
		return s.tag == q.Tag
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := len(a.live) - 1; i >= 0; i-- { // the latest of those with a tag
		if is(a.live[i]) {
			return a.live[i], nil
		}
	}
	for i := len(a.past) - 1; late && i >= 0; i-- {
		if s := a.past[i]; is(s) && time.Since(s.ended) < exitKept {
			return s, nil
		}
	}
	if q.PID != 0 {
		return nil, &connectError{codeNotFound, fmt.Sprintf("process with pid %d not found", q.PID)}
	}
	return nil, &connectError{codeNotFound, fmt.Sprintf("process with tag %s not found", q.Tag)}
}

func (a *services) list() []*service {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*service(nil), a.live...)
}

// launchService starts a process and follows it when begin is called.
func (a *Agent) launchService(q *wire.ProcessStart, u user, timeout time.Duration) (s *service, begin func(), err error) {
	r, err := a.request(q, u)
	if err != nil {
		return nil, nil, err
	}
	p, o, err := a.spawn(r)
	if err != nil {
		return nil, nil, err
	}
	s = &service{
		process: p, config: q.Process, tag: q.Tag,
		told: make(chan struct{}), over: make(chan struct{}),
	}
	a.services.add(s)
	stop := func() bool { return true }
	if timeout > 0 {
		stop = time.AfterFunc(timeout, func() {
			s.mu.Lock()
			s.expired = true
			s.mu.Unlock()
			s.tell()
			a.table.signal(p, syscall.SIGKILL, wire.Tree)
		}).Stop
	}
	return s, func() {
		go func() {
			s.follow(o)
			stop()
			a.services.retire(s, exitEvent(p.status))
		}()
	}, nil
}
