// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/cpuid"
)

// processorFeature is gVisor's own description of a feature.
type processorFeature struct {
	_ string // its name
	_ bool   // whether Linux shows it in /proc/cpuinfo
}

// processorFeatures are the features that gVisor knows by name.
//
//go:linkname processorFeatures gvisor.dev/gvisor/pkg/cpuid.allFeatures
var processorFeatures map[cpuid.Feature]processorFeature

// readProcessor does what gVisor would do a moment later: it asks the
// processor what it can do. gVisor asks for every function of the instruction
// CPUID and then once more for each of 200 features, which all lie in those
// functions. Under a hypervisor each asking leaves the virtual machine:
// together 2 ms.
func readProcessor() {
	features := processorFeatures
	processorFeatures = nil
	cpuid.Initialize()
	processorFeatures = features
}
