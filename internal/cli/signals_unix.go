// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// passedOn are signals that mean what a program takes them for, and would end this
// process otherwise.
func passedOn() []os.Signal { return []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2} }

// asksForTheEnd says whether a signal that was handed on is not one of them.
func asksForTheEnd(s syscall.Signal) bool { return !slices.Contains(passedOn(), os.Signal(s)) }

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "signal " + strconv.Itoa(int(s))
}
