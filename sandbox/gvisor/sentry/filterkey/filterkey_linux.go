// SPDX-License-Identifier: Apache-2.0

// Package filterkey names the options for which gVisor's seccomp filters are
// compiled ahead of time, one set for its kernel and one for its file server,
// and reaches the rules behind them.
package filterkey

import (
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap" // registers itself
	"gvisor.dev/gvisor/runsc/boot/filter/config"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter/config"
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
// gVisor exports only the finished form. It stays with the filters that are compiled
// ahead; so does GoferRules.
//
//go:linkname Rules gvisor.dev/gvisor/runsc/boot/filter/config.rules
func Rules(opt config.Options, vars precompiledseccomp.Values) (allow, deny seccomp.SyscallRules)

// GoferOptions are what the file server is started with, as far as its filter
// depends on it: files are donated to the kernel, which opens them itself.
func GoferOptions() gofer.Options { return gofer.Options{DirectFS: true} }

// GoferRules are the file server's rules with vars as placeholders.
//
//go:linkname GoferRules gvisor.dev/gvisor/runsc/fsgofer/filter/config.rules
func GoferRules(opt gofer.Options, vars precompiledseccomp.Values) (allow, deny seccomp.SyscallRules)
