// SPDX-License-Identifier: Apache-2.0

//go:build embedengine

package shelf

import _ "embed"

// What this binary carries, packed.
var (
	//go:embed caisson-engine.zst
	Engine []byte
	//go:embed caisson-router.zst
	Router []byte
)
