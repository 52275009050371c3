// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package cli

import (
	"fmt"
	"os"
	"syscall"
)

// passedOn are none: this system has no signals but those that ask for the end.
func passedOn() []os.Signal { return nil }

func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	case syscall.SIGQUIT:
		return "SIGQUIT"
	}
	return fmt.Sprintf("signal %d", int(s))
}
