// SPDX-License-Identifier: Apache-2.0

package api

import "strconv"

// maxShown is how much of a word that a client sent an answer repeats, in bytes.
const maxShown = 200

// Quoted shows what a client sent.
func Quoted(s string) string { return strconv.Quote(Clip(s, maxShown)) }

// Clip is the first bytes of s, most of them.
func Clip(s string, maximum int) string { return s[:min(len(s), maximum)] }
