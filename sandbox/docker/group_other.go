// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package docker

// groupOf is nothing: the engine's host is a virtual machine.
func groupOf(int) group { return nil }

// limitSockets has nothing to do.
func limitSockets(group, int64) error { return nil }
