// SPDX-License-Identifier: Apache-2.0

//go:build embedengine

package engine

import (
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/internal/linux/engine/pieces"
	"github.com/caisson-run/caisson/internal/linux/engine/shelf"
)

// InPieces has this program, which is about to end, kept in memory in large pieces
// (package pieces), unless that was done since the kernel was started. runs is the
// directory of the run directories. What is against it is no fault: it is as fast as it
// was.
func InPieces(runs string) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	// First, so that runs that end now do not all do it, nor each of them where nothing
	// can be written.
	if first, err := shelf.LookAfter(runs, self); err != nil || !first {
		return err
	}
	program, err := OpenRouter(filepath.Join(runs, "none"))
	if err != nil {
		return err
	}
	defer program.Close()
	return pieces.Start(program, self)
}
