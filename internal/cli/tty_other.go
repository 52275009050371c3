// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package cli

// onResize does nothing: this system does not tell.
func onResize(func()) (stop func()) { return func() {} }
