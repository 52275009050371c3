// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "github.com/caisson-run/caisson/cmd/caisson/begin" // begins before the rest is initialised
	"github.com/caisson-run/caisson/sandbox/gvisor/newborn"
)

// discard ends what was begun and not asked for.
func discard() { newborn.Discard() }
