// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// stats is the live line of --stats. On a terminal it is one line that
// changes; elsewhere a line each second.
type stats struct {
	a    *app
	last chan sandbox.Usage // the newest reading; older ones are dropped
	done chan struct{}
	over chan struct{}
}

func (a *app) startStats(on bool, call *session.Call) *stats {
	if !on {
		return nil
	}
	s := &stats{a: a, last: make(chan sandbox.Usage, 1), done: make(chan struct{}), over: make(chan struct{})}
	call.OnUsage = func(u sandbox.Usage) {
		select {
		case <-s.last:
		default:
		}
		select {
		case s.last <- u:
		default:
		}
	}
	go s.loop()
	return s
}

func (s *stats) loop() {
	defer close(s.over)
	every := time.Second
	if isTerminal(s.a.err) {
		every = 500 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var before sandbox.Usage
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		select {
		case u := <-s.last:
			s.line(usageLine(before, u))
			before = u
		default:
		}
	}
}

func (s *stats) line(text string) {
	if isTerminal(s.a.err) {
		fmt.Fprint(s.a.err, "\r\x1b[K"+s.a.paint("2", text))
		return
	}
	fmt.Fprintln(s.a.err, text)
}

// stop ends the live line and prints the sums.
func (s *stats) stop(r *sandbox.Result) {
	if s == nil {
		return
	}
	close(s.done)
	<-s.over
	if isTerminal(s.a.err) {
		fmt.Fprint(s.a.err, "\r\x1b[K")
	}
	if r == nil {
		return
	}
	s.a.note("stats: %s", usedLine(r))
}

// usageLine shows what was measured; the CPU share is since the line before.
func usageLine(before, u sandbox.Usage) string {
	var parts []string
	if u.CPU != nil {
		if wall := u.At.Sub(before.At); before.CPU != nil && wall > 0 {
			parts = append(parts, fmt.Sprintf("cpu %3.0f%%", 100*float64(*u.CPU-*before.CPU)/float64(wall)))
		}
		parts = append(parts, "cpu time "+u.CPU.Round(10*time.Millisecond).String())
	}
	if u.Memory != nil {
		parts = append(parts, "memory "+session.Size(*u.Memory))
	}
	if u.Processes != nil {
		parts = append(parts, fmt.Sprintf("processes %d", *u.Processes))
	}
	if u.Disk != nil {
		parts = append(parts, "disk "+session.Size(*u.Disk))
	}
	return strings.Join(parts, "  ")
}
