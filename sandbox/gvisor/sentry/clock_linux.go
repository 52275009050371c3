// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// clockCalls are what a program's C library asks instead of the page that
// gVisor shares with it, while that page has no time.
var clockCalls = []string{"clock_gettime", "gettimeofday", "time"}

// apart is how long two looks at the host's clock must lie apart.
const apart = 10 * time.Millisecond

// startClocks has the page with the time ready soon after a program first asks
// for it.
//
// gVisor works out how fast the processor counts from two looks at the host's
// clock, the second one second after the first, and until then each look of a
// program at the time is a system call. CPython looks 227 times before its
// first line, which was 12 of 155 ms of processor time for a whole run of it. As
// a rule a look is exact to half a microsecond (gVisor tries again otherwise),
// so after 10 ms the rate is right to 1 in 10000, and gVisor corrects it after
// the first second as it always does, without a jump.
func startClocks(table *kernel.SyscallTable) {
	var once sync.Once
	for number, call := range table.Table {
		if !slices.Contains(clockCalls, call.Name) {
			continue
		}
		ask := call.Fn
		call.Fn = func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			once.Do(func() { go calibrate(t.Kernel().Timekeeper()) })
			return ask(t, number, args)
		}
		table.Table[number] = call
	}
	table.Init() // copies Table to where the kernel looks
}

// calibrate makes the timekeeper look at the host's clock once more, as it does
// when a paused kernel goes on.
func calibrate(tk *kernel.Timekeeper) {
	params := clockPage(tk)
	if params == nil {
		return
	}
	time.Sleep(time.Until(time.Unix(0, tk.BootTime().Nanoseconds()).Add(apart))) // it looked first then
	tk.Pause()
	tk.Resume(params)
}

// clockPage is the page that the timekeeper shares with programs.
func clockPage(tk *kernel.Timekeeper) *kernel.VDSOParamPage {
	f := reflect.ValueOf(tk).Elem().FieldByName("params")
	if !f.IsValid() || f.Type() != reflect.TypeFor[*kernel.VDSOParamPage]() {
		return nil
	}
	return (*kernel.VDSOParamPage)(f.UnsafePointer())
}
