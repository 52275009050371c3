// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/google/go-cmp/cmp"
)

// sample is a reading at second at; -1 is not measured.
func sample(at, cpu float64, memory int64, processes int) sandbox.Usage {
	u := sandbox.Usage{At: time.Unix(1000, 0).Add(time.Duration(at * float64(time.Second)))}
	if cpu >= 0 {
		d := time.Duration(cpu * float64(time.Second))
		u.CPU = &d
	}
	if memory >= 0 {
		u.Memory, u.Disk = &memory, &memory
	}
	if processes >= 0 {
		u.Processes = &processes
	}
	return u
}

func TestWatch(t *testing.T) {
	for _, tc := range []struct {
		name, rule string
		samples    []sandbox.Usage
		want       []string // "second: value since second"
	}{
		{
			"busy for long", "{when: cpu_percent > 80, for: 3s}",
			[]sandbox.Usage{sample(0, 0, -1, -1), sample(1, .9, -1, -1), sample(2, 1.9, -1, -1), sample(3, 2.9, -1, -1), sample(4, 3.9, -1, -1)},
			[]string{"3: 100 since 0"},
		},
		{
			"a breath in between", "{when: cpu_percent > 80, for: 3s}",
			[]sandbox.Usage{sample(0, 0, -1, -1), sample(1, 1, -1, -1), sample(2, 2, -1, -1), sample(3, 2.5, -1, -1), sample(4, 3.5, -1, -1), sample(5, 4.5, -1, -1)},
			nil,
		},
		{
			"two processors", "{when: cpu_percent >= 200, for: 1s}",
			[]sandbox.Usage{sample(0, 0, -1, -1), sample(1, 2, -1, -1)},
			[]string{"1: 200 since 0"},
		},
		{
			"exactly is not more", "{when: cpu_percent > 100}",
			[]sandbox.Usage{sample(0, 0, -1, -1), sample(1, 1, -1, -1)}, nil,
		},
		{
			"one sample has no use of processors", "{when: cpu_percent >= 0}",
			[]sandbox.Usage{sample(0, 5, -1, -1)}, nil,
		},
		{
			"a reading missing in between", "{when: cpu_percent > 80, for: 2s}",
			[]sandbox.Usage{sample(0, 0, -1, -1), sample(1, -1, 5, -1), sample(2, 1.8, -1, -1)},
			[]string{"2: 90 since 0"},
		},
		{
			"a counter that starts anew", "{when: cpu_percent > 1}",
			[]sandbox.Usage{sample(0, 9, -1, -1), sample(1, 0, -1, -1), sample(2, 0.5, -1, -1)},
			[]string{"2: 50 since 1"},
		},
		{
			"time that stands still", "{when: cpu_percent > 80}",
			[]sandbox.Usage{sample(1, 0, -1, -1), sample(1, 9, -1, -1), sample(0, 9, -1, -1)}, nil,
		},
		{
			"at once", "{when: memory >= 100}", []sandbox.Usage{sample(0, -1, 99, -1), sample(1, -1, 100, -1)},
			[]string{"1: 100 since 1"},
		},
		{
			"once until it has not held", "{when: processes > 2}",
			[]sandbox.Usage{sample(0, -1, -1, 3), sample(1, -1, -1, 4), sample(2, -1, -1, 2), sample(3, -1, -1, 9)},
			[]string{"0: 3 since 0", "3: 9 since 3"},
		},
		{
			"part of the limit", "{when: memory_percent > 50, for: 1s}", []sandbox.Usage{sample(0, -1, 600, -1), sample(1, -1, 700, -1)},
			[]string{"1: 70 since 0"},
		},
		{"disk", "{when: disk > 5B}", []sandbox.Usage{sample(0, -1, 6, -1)}, []string{"0: 6 since 0"}},
		{"not measured", "{when: processes > 2}", []sandbox.Usage{sample(0, 1, 1, -1)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := NewWatch(parse(t, "p.yaml", "watch: ["+tc.rule+"]").Watch, sandbox.Limits{Memory: 1000})
			var got []string
			for _, u := range tc.samples {
				for _, f := range w.Observe(u) {
					second := func(t time.Time) int { return int(t.Sub(time.Unix(1000, 0)).Seconds()) }
					got = append(got, fmt.Sprintf("%d: %.0f since %d", second(f.At), f.Value, second(f.Since)))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWatchFired(t *testing.T) {
	rules := parse(t, "p.yaml", "watch: [{when: memory > 1MiB, do: report}, {when: memory_percent > 1}, {when: processes > 1}, {when: disk > 1}]").Watch
	w := NewWatch(rules, sandbox.Limits{Memory: 1 << 20})
	fired := w.Observe(sample(0, 0, 1<<21, 5))
	var got []string
	for _, f := range fired {
		got = append(got, fmt.Sprintf("%s %v %s %s", f.Resource(), f.Kill(), f.Rule.From, f))
	}
	want := []string{
		"memory false p.yaml:2 memory > 1MiB has held for 0s (now 2097152)",
		"memory true p.yaml:2 memory_percent > 1 has held for 0s (now 200.0)",
		"processes true p.yaml:2 processes > 1 has held for 0s (now 5)",
		"disk true p.yaml:2 disk > 1 has held for 0s (now 2097152)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r := (Fired{Rule: WatchRule{Metric: metricCPU}}).Resource(); r != sandbox.LimitCPUs {
		t.Errorf("cpu_percent is %s", r)
	}
	if n := len(NewWatch(rules, sandbox.Limits{}).Observe(sample(0, 0, 1<<21, 5))); n != 3 {
		t.Errorf("%d rules fired without limits.memory, want 3: a part of nothing cannot be", n)
	}
}
