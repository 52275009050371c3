// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package boot

// Init does nothing on a system that no machine of ours boots.
func Init() {}
