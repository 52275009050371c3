// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor

import "time"

// HaveRoom has it assumed that signals may wait.
func HaveRoom() { room = func() bool { return true } }

// SetEndGrace shortens the timeout of a shim, for a test of its end.
func SetEndGrace(d time.Duration) (restore func()) {
	old := endGrace
	endGrace = d
	return func() { endGrace = old }
}
