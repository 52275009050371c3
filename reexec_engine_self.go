// SPDX-License-Identifier: Apache-2.0

//go:build linux && !embedengine

package caisson

import "github.com/caisson-run/caisson/sandbox/gvisor/halves"

func reexecEngine() { halves.Reexec() }
