// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package config

import (
	"os"

	"github.com/caisson-run/caisson/sandbox"
)

// trusted refuses: who owns a file cannot be told here.
func trusted(_ *os.File, path string) error {
	return sandbox.Errorf(sandbox.ErrUnsupported, path, "a system policy is not supported on this system")
}
