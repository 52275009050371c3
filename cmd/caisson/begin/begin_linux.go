// SPDX-License-Identifier: Apache-2.0

// Package begin begins the sandbox that a command line will most likely ask for,
// before the program has initialised most of its packages (sandbox/gvisor/newborn).
// It guesses: what it guesses wrong costs a process that is ended unused.
package begin

import (
	"os"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/sandbox/gvisor/newborn"
)

func init() {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		slack()
	}
	if likely(os.Args) {
		newborn.Begin(state(os.Geteuid(), os.Getenv))
	}
}

// slack lets timers of this process be late, as those of the shim and of gVisor's halves:
// while a run is prepared and its end is recorded, Go's monitor wakes every 20 µs to look
// after the other threads. Now there are few of them, and those to come inherit it;
// programs inside do not have it.
func slack() {
	const set = 29 // PR_SET_TIMERSLACK (prctl(2))
	_, _, _ = syscall.AllThreadsSyscall(syscall.SYS_PRCTL, set, newborn.Slack, 0)
}

// likely says whether a command line will run something on gVisor. A policy, which
// may say something else, is not read: a level that it names costs that process.
func likely(args []string) bool {
	if len(args) < 3 || args[1] != "run" {
		return false
	}
	for i, a := range args[2:] {
		name, value, joined := strings.Cut(a, "=")
		switch {
		case a == "--":
			return true
		case name == "--help" || a == "-h":
			return false
		case name != "--isolation":
		case joined:
			return value == "gvisor"
		default:
			return len(args) > i+3 && args[i+3] == "gvisor"
		}
	}
	return true
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
