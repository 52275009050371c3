// SPDX-License-Identifier: Apache-2.0

//go:build linux && embedengine

package caisson

// reexecEngine has nothing to take over: gVisor's gofer and sentry and the router are other
// programs, which this one carries (internal/linux/engine).
func reexecEngine() {}
