// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cli

// gvisorVersion is nothing: gVisor needs Linux.
func gvisorVersion() string { return "" }
