// SPDX-License-Identifier: Apache-2.0

//go:build linux && !amd64

package sentry

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

// precompiled is empty where seccompgen has not been run: gVisor compiles its
// filter at every start then.
func precompiled() []precompiledseccomp.Program { return nil }
