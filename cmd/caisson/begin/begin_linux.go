// SPDX-License-Identifier: Apache-2.0

// Package begin begins the sandbox that a command line will most likely ask for,
// before the program has initialised most of its packages: a process on gVisor
// (sandbox/gvisor/newborn), a thread in a network of its own on the process level
// (sandbox/process/seat). It guesses: what it guesses wrong costs a process that is
// ended unused, or a thread that waits.
package begin

import (
	"os"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/sandbox/gvisor/newborn"
	"github.com/caisson-run/caisson/sandbox/process/seat"
)

func init() {
	g := guessed(os.Args)
	if g.unsure {
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "run" {
		slack()
	}
	switch {
	case g.level == "gvisor":
		newborn.Begin(g.place())
	case g.level != "process" || os.Geteuid() != 0:
	case g.network:
		seat.Begin(&device)
	default:
		seat.Begin(nil)
	}
}

// device is that of every network (package egress, which has more to initialise).
var device = tun.Config{Address: [4]byte{198, 18, 0, 2}, Gateway: [4]byte{198, 18, 0, 1}, MTU: 32 << 10}

// slack lets timers of this process be late, as those of the shim and of gVisor's halves:
// while a run is prepared and its end is recorded, Go's monitor wakes every 20 µs to look
// after the other threads. The monitor's alone are, where this process may say so of
// another thread: whoever looks for work sleeps for 3 µs before it takes what another
// thread has only just begun, and that would take as long. Else all threads' are; there
// are few of them yet, and those to come inherit it. Programs inside do not have it.
func slack() {
	if threads.SlowMonitor(newborn.Slack) == nil {
		return
	}
	const set = 29 // PR_SET_TIMERSLACK (prctl(2))
	_, _, _ = threads.Call(syscall.SYS_PRCTL, set, newborn.Slack, 0)
}

// place is the state directory of a command line.
func (g guess) place() string {
	if g.state != "" {
		return g.state
	}
	return state(os.Geteuid(), os.Getenv)
}

// state is where package store looks for the state directory first.
func state(euid int, getenv func(string) string) string {
	if dir := getenv("CAISSON_STATE"); dir != "" {
		return dir
	}
	if euid == 0 {
		return "/var/lib/caisson"
	}
	if dir := getenv("XDG_STATE_HOME"); strings.HasPrefix(dir, "/") {
		return dir + "/caisson"
	}
	if home := getenv("HOME"); strings.HasPrefix(home, "/") {
		return home + "/.local/state/caisson"
	}
	return ""
}
