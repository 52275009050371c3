// SPDX-License-Identifier: Apache-2.0

//go:build embedguest

package embedded

import (
	_ "embed"
	"os"
)

//go:embed caisson-guest
var program []byte

var file shared

// Open returns the agent as an open, sealed file without a name. The caller
// closes it.
func Open() (*os.File, error) { return file.open(program) }
