// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"

	"github.com/caisson-run/caisson/internal/linux/engine"
)

// inPieces has the kernel keep this program so that the next runs start faster, once
// after each boot. Nobody has to know where it cannot.
func inPieces(state string) { _ = engine.InPieces(filepath.Join(state, "run")) }
