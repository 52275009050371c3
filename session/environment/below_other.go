// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package environment

import (
	"os"

	"github.com/caisson-run/caisson/sandbox"
)

// openBelow is not supported here.
func openBelow(*os.File, string) (*os.File, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "mount", "sandboxes run on Linux only")
}

// readLink is not supported here.
func readLink(*os.File) (string, error) {
	return "", sandbox.Errorf(sandbox.ErrUnsupported, "mount", "sandboxes run on Linux only")
}

// Reopen is not supported here.
func Reopen(f *os.File) (*os.File, error) { return openBelow(f, "") }

// readBelow is not supported here.
func readBelow(dir *os.File, rel string) (*os.File, error) { return openBelow(dir, rel) }
