// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/pkg/cpuid"
)

// What gVisor then believes of the processor is what it finds out by itself.
func TestReadProcessor(t *testing.T) {
	if len(processorFeatures) < 100 {
		t.Fatalf("gVisor knows %d features by name: they are somewhere else", len(processorFeatures))
	}
	readProcessor()
	if len(processorFeatures) < 100 {
		t.Fatal("gVisor has forgotten the names of features")
	}
	native := cpuid.FeatureSet{Function: &cpuid.Native{}}
	// Both are read on one processor, but perhaps not on the same core of it,
	// and the number of the core is in one of the answers.
	core := cpuid.In{Eax: 1}
	want, got := native.ToStatic().ToFeatureSet().Function.(cpuid.Static), cpuid.HostFeatureSet().Function.(cpuid.Static)
	for _, s := range []cpuid.Static{want, got} {
		out := s[core]
		out.Ebx &^= 0xff << 24
		s[core] = out
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-gVisor +ours:\n%s", diff)
	}
}
