// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"crypto/rand"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// BenchmarkRun is a cold one-shot, in turns with the bare program.
func BenchmarkRun(b *testing.B) {
	for _, argv := range [][]string{{"/bin/true"}, {"/usr/bin/python3", "-c", "print(1)"}} {
		b.Run(argv[0], func(b *testing.B) {
			d := process.New(process.Options{})
			spec := fixture(b)
			var ours, bare []time.Duration
			var cpu [2]time.Duration // with all that was waited for
			for b.Loop() {
				spec.ID = "sbx_" + rand.Text()
				before, began := used(b), time.Now()
				res, err := d.Run(b.Context(), spec, &sandbox.Exec{Argv: argv, Dir: "/tmp", Env: []string{"PATH=/usr/bin:/bin"}})
				ours = append(ours, time.Since(began))
				if err != nil || res.Status != sandbox.StatusSuccess {
					b.Fatal(res, err)
				}
				cpu[0] += used(b) - before
				before, began = used(b), time.Now()
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.Env = []string{}
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, time.Since(began))
				cpu[1] += used(b) - before
			}
			slices.Sort(ours)
			slices.Sort(bare)
			n := len(ours)
			b.ReportMetric(ours[n/2].Seconds()*1e3, "ms/run")
			b.ReportMetric(bare[n/2].Seconds()*1e3, "ms/bare")
			b.ReportMetric(ours[n/2].Seconds()/bare[n/2].Seconds(), "x")
			b.ReportMetric(ours[n/10].Seconds()/bare[n/10].Seconds(), "x(p10)")
			b.ReportMetric(float64(cpu[0])/float64(cpu[1]), "x(cpu)")
		})
	}
}

// used is the CPU time of this process and of all that it has waited for.
func used(b *testing.B) (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var ru unix.Rusage
		if err := unix.Getrusage(who, &ru); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	}
	return sum
}
