// SPDX-License-Identifier: Apache-2.0

// Package filterkey names the one set of options for which gVisor's seccomp
// filter is compiled ahead of time, and reaches the rules behind it.
package filterkey

import (
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap" // registers itself
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

// Options are what caisson starts gVisor with, as far as its filter depends
// on it: systrap, gVisor's own network stack, host files reached directly.
func Options() config.Options {
	constructor, err := platform.Lookup("systrap")
	if err != nil {
		panic("systrap is linked in: " + err.Error())
	}
	return config.Options{Platform: constructor.PrecompiledSeccompInfo()[0], HostFilesystem: true}
}

// Rules are gVisor's allowed and denied syscalls with vars as placeholders;
// gVisor exports only the finished form.
//
//go:linkname Rules gvisor.dev/gvisor/runsc/boot/filter/config.rules
func Rules(opt config.Options, vars precompiledseccomp.Values) (allow, deny seccomp.SyscallRules)
