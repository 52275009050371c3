// SPDX-License-Identifier: Apache-2.0

// Package sentry is the half of the binary that is gVisor: the boot process
// (the application kernel), the gofer (its file server) and the umounter.
//
// gVisor starts its gofer and sentry by executing /proc/self/exe with a telling
// argv[0]. A binary that embeds this package must therefore hand over to
// [Main] before anything else when [Wanted] says so. Only the three commands
// that are executed again are linked; the runsc command line is not, which
// keeps the binary 47 MB smaller.
package sentry

import (
	"path/filepath"
	"strings"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/version"
)

// Wanted reports whether argv is one of gVisor's gofer and sentry: "runsc-sandbox",
// "runsc-gofer", or the umounter, which is "/proc/self/exe" itself.
func Wanted(argv []string) bool {
	if len(argv) == 0 {
		return false
	}
	return strings.HasPrefix(filepath.Base(argv[0]), "runsc-") ||
		(argv[0] == "/proc/self/exe" && len(argv) > 1 && isInternal(argv[1:]))
}

// isInternal reports whether one of gVisor's internal commands is among args.
func isInternal(args []string) bool {
	for _, a := range args {
		switch a {
		case "boot", "gofer", "umount":
			return true
		}
	}
	return false
}

// Main runs the half and does not return.
func Main() {
	tuneCollector()
	adapt()
	cli.Run(nil, map[util.SubCommand]string{
		new(boot):             "internal",
		new(sentrycmd.Umount): "internal",
		new(cmd.Gofer):        "internal",
	}, nil)
}

// Version is the embedded gVisor's own version string.
func Version() string { return version.Version() }
