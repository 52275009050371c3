// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"crypto/rand"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// Two hundred in a row, more at a time than there are processors, beside a
// busy garbage collector: a child on our memory meets whatever the Go runtime
// does at the same time.
func TestManyAtOnce(t *testing.T) {
	spec := fixture(t)
	d := process.New(process.Options{})
	stop := make(chan struct{})
	var busy, runs sync.WaitGroup
	busy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = strings.Repeat("garbage", 1<<16)
				runtime.GC()
			}
		}
	})
	for range 4 * runtime.GOMAXPROCS(0) {
		runs.Go(func() {
			for range 200 / (4 * runtime.GOMAXPROCS(0)) {
				own := *spec
				own.ID = "sbx_" + rand.Text()
				var out strings.Builder
				res, err := d.Run(t.Context(), &own, &sandbox.Exec{Argv: []string{"/bin/echo", own.ID}, Dir: "/tmp", Stdout: &out})
				if err != nil || res.Status != sandbox.StatusSuccess || out.String() != own.ID+"\n" {
					t.Errorf("%+v, %v, %q", res, err, out.String())
					return
				}
			}
		})
	}
	runs.Wait()
	close(stop)
	busy.Wait()
	if left := children(t); len(left) > 0 {
		t.Errorf("%d processes are left", len(left))
	}
}
