// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/sched"
)

// showProcessors has programs see no more processors than n that they may run on, by
// which nproc and most runtimes size their threads. It binds nothing: gVisor's kernel
// runs them where it likes, and the control group holds how much they get.
//
// A smaller machine would be another way (--cpu-num). But then gVisor's own kernel has no
// more threads than that, and who knows of one processor alone may leave out what keeps
// threads apart that do run at the same time.
func showProcessors(table *kernel.SyscallTable, n uint) {
	for number, call := range table.Table {
		if call.Name != "sched_getaffinity" {
			continue
		}
		ask := call.Fn
		call.Fn = func(t *kernel.Task, number uintptr, a arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			if mask := narrowed(t.CPUMask(), t.Kernel().ApplicationCores(), n); mask != nil {
				_ = t.SetCPUMask(mask)
			}
			return ask(t, number, a)
		}
		table.Table[number] = call
	}
	table.Init() // copies Table to where the kernel looks
}

// narrowed is a set of n processors in place of all of them; nil where mask is smaller,
// because a program has said so.
func narrowed(mask sched.CPUSet, all, n uint) sched.CPUSet {
	if n == 0 || n >= all || mask.NumCPUs() != all {
		return nil
	}
	few := sched.NewFullCPUSet(all)
	few.ClearAbove(n)
	return few
}
