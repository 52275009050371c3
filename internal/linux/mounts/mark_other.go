// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package mounts

// DirectoryMark is empty: an engine on such a host is in a virtual machine.
func DirectoryMark(string) string { return "" }
