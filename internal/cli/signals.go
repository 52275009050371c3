// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
)

// grace is how long a program has to end by itself after the first signal.
const grace = 2 * time.Second

// signals hands the first SIGINT, SIGTERM, SIGHUP or SIGQUIT to the program, and ends
// the sandbox when it is not gone soon, or at the second one. Where it does not end it
// gives up soon after the second, or at the third. What asks for no end (SIGUSR1,
// SIGUSR2) it hands on, each time.
type signals struct {
	forward chan syscall.Signal
	in      chan os.Signal // that ask for the end; others have no place in it to take
	passed  chan os.Signal
	done    chan struct{}

	mu    sync.Mutex
	first syscall.Signal
}

// listen begins that; giveUp ends this process.
func listen(end func(error), giveUp func(syscall.Signal)) *signals {
	s := &signals{forward: make(chan syscall.Signal, 4), in: make(chan os.Signal, 4), passed: make(chan os.Signal, 4), done: make(chan struct{})}
	// SIGPIPE is caught so that a closed output ends the program and not this
	// process, which has to clean up.
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE}
	// What was ignored when this process began stays so: nohup means the program inside, too.
	signal.Notify(s.in, slices.DeleteFunc(ends, signal.Ignored)...)
	if pass := slices.DeleteFunc(passedOn(), signal.Ignored); len(pass) > 0 { // of none it would be all
		signal.Notify(s.passed, pass...)
	}
	go s.loop(end, giveUp)
	return s
}

func (s *signals) loop(end func(error), giveUp func(syscall.Signal)) {
	var late, last <-chan time.Time
	for {
		select {
		case <-s.done:
			return
		case <-late:
			end(fmt.Errorf("ended by %s", signalName(s.got())))
		case <-last:
			giveUp(s.got())
		case in := <-s.passed:
			sig, _ := in.(syscall.Signal)
			s.pass(sig)
		case in := <-s.in:
			sig, _ := in.(syscall.Signal)
			if sig == syscall.SIGPIPE {
				continue
			}
			if last != nil {
				giveUp(s.got())
			}
			if s.got() != 0 {
				last = time.After(runLimit)
				end(fmt.Errorf("ended by %s", signalName(sig)))
				continue
			}
			s.mu.Lock()
			s.first = sig
			s.mu.Unlock()
			s.pass(sig)
			late = time.After(grace)
		}
	}
}

// pass hands one on. Where the last ones were not taken yet it is lost, as signals are.
func (s *signals) pass(sig syscall.Signal) {
	select {
	case s.forward <- sig:
	default:
	}
}

// got is the first signal that asked for the end.
func (s *signals) got() syscall.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

// stop lets signals do what they do otherwise. That is not waited for: the runtime
// asks another thread for each of them, and this process is about to end.
func (s *signals) stop() {
	go func() {
		signal.Stop(s.in)
		signal.Stop(s.passed)
	}()
	close(s.done)
}
