// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hostfacts

import (
	"context"
	"runtime"
)

// Gather says which system this is; caisson needs Linux for the rest.
func Gather(_ context.Context, stateDir string) Facts {
	return Facts{System: runtime.GOOS, Arch: runtime.GOARCH, StateDir: stateDir, DiskFree: -1}
}
