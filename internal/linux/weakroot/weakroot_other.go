// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package weakroot

// Enter does nothing.
func Enter() (code int, done bool) { return 0, false }
