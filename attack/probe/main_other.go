// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package probe

// Main is for Linux.
func Main([]string) int { return 125 }
