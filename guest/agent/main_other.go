// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package agent

import (
	"fmt"
	"os"
)

// Main says that the agent is a Linux program.
func Main() {
	fmt.Fprintln(os.Stderr, "caisson-guest: the guest agent runs on Linux only")
	os.Exit(1)
}
