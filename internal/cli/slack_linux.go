// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
)

// slack lets timers of this process be late by 0.3 ms, as a sandbox's own are on gVisor.
// While a Go program is at work a thread of its runtime wakes every 20 µs to look after
// the others, which wakes a processor that its client or its server could use: those of
// a gateway wait for each other several times in a call. Threads that are made later have
// it from those that are there; programs inside have the usual slack.
func slack() {
	_, _, _ = threads.Call(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 300_000, 0)
}
