// SPDX-License-Identifier: Apache-2.0

//go:build !embedengine

package engine

import (
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Open returns the running program, which is its own engine, as a handle. The
// caller closes it.
func Open(stateDir string) (*os.File, error) {
	return os.OpenFile("/proc/self/exe", unix.O_PATH, 0)
}

// OpenRouter returns the same: it is its own router, too.
func OpenRouter(stateDir string) (*os.File, error) { return Open(stateDir) }

// GVisor is the version of gVisor's module in it, empty when it is not written
// down.
func GVisor() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == "gvisor.dev/gvisor" {
			return m.Version
		}
	}
	return ""
}
