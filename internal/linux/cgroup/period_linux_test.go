// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"path/filepath"
	"testing"
)

// The period of a new group of version 1 is not written, because it is what the kernel
// gives it; another one is, as often as it changes. Version 2 has it in one file with
// the quota.
func TestPeriod(t *testing.T) {
	h := host(t)
	g := group(t, h, Limits{CPUs: 0.5})
	for _, want := range []struct {
		cpus          float64
		quota, period string
	}{{0.5, "50000", "100000"}, {0.005, "5000", "1000000"}, {0.004, "4000", "1000000"}} {
		if err := g.Tighten(Limits{CPUs: want.cpus}); err != nil {
			t.Fatal(err)
		}
		if h.Version == 2 {
			if got := read(filepath.Join(g.dir(CPU), "cpu.max")); got != want.quota+" "+want.period {
				t.Errorf("%v processors are %s, want %s of %s", want.cpus, got, want.quota, want.period)
			}
			continue
		}
		quota, period := read(filepath.Join(g.dir(CPU), "cpu.cfs_quota_us")), read(filepath.Join(g.dir(CPU), "cpu.cfs_period_us"))
		if quota != want.quota || period != want.period {
			t.Errorf("%v processors are %s of %s, want %s of %s", want.cpus, quota, period, want.quota, want.period)
		}
	}
}
