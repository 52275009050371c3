// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"strconv"
	_ "unsafe" // for go:linkname

	specs "github.com/opencontainers/runtime-spec/specs-go"
	_ "gvisor.dev/gvisor/runsc/cmd" // has goferCaps
	"gvisor.dev/gvisor/runsc/config"
)

// goferCaps are the capabilities that gVisor's file server gives itself.
//
//go:linkname goferCaps gvisor.dev/gvisor/runsc/cmd.goferCaps
var goferCaps *specs.LinuxCapabilities

// withoutAmbient leaves a file server that executes nothing any more without ambient
// capabilities, which are those that what it executes would have. gVisor raises each of
// the six with a stop of all its threads. One that is still to become its user executes
// itself with them and is left as it is.
func withoutAmbient(args []string) {
	waits, err := strconv.Atoi(flagValue(args, "--sync-userns-fd"))
	if config.CgoEnabled || err == nil && waits >= 0 {
		return
	}
	goferCaps.Ambient = nil
}
