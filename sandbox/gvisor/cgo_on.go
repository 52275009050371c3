// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gvisor

// builtWithCgo: gVisor's gofer and sentry execute this program again where there is no
// dynamic linker, so a program with cgo cannot be them.
const builtWithCgo = true
