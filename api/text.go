// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strconv"

	"github.com/caisson-run/caisson/sandbox"
)

// maxShown is how much of a word that a client sent an answer repeats, in bytes.
const maxShown = 200

// Quoted shows what a client sent.
func Quoted(s string) string { return strconv.Quote(sandbox.Clip(s, maxShown)) }
