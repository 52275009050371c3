// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package caisson

// Reexec returns at once: no level of isolation here starts this program
// again.
func Reexec() { itself.Store(true) }
