// SPDX-License-Identifier: Apache-2.0

//go:build linux && !amd64

package sentry

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

// Without generated filters gVisor compiles its filters at every start.

func kernelFilters() []precompiledseccomp.Program { return nil }
func goferFilters() []precompiledseccomp.Program  { return nil }
