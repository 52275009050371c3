// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// argumentCalls are those that take arguments and variables of a program, and which of
// their own arguments these are.
var argumentCalls = map[string][2]int{"execve": {1, 2}, "execveat": {2, 3}}

// nameLongArguments has calls fail with E2BIG where arguments or variables are too long,
// as Linux has it. gVisor says ENAMETOOLONG of one, and ENOMEM of all together: a shell
// then speaks of a file name.
func nameLongArguments(table *kernel.SyscallTable) {
	for number, call := range table.Table {
		at, ok := argumentCalls[call.Name]
		if !ok {
			continue
		}
		execute := call.Fn
		call.Fn = func(t *kernel.Task, number uintptr, a arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			ret, ctrl, err := execute(t, number, a)
			if unfit(err) && (tooLong(t, a[at[0]].Pointer()) || tooLong(t, a[at[1]].Pointer())) {
				err = linuxerr.E2BIG
			}
			return ret, ctrl, err
		}
		table.Table[number] = call
	}
	table.Init() // copies Table to where the kernel looks
}

// unfit says whether err is what gVisor says of words that are too long. It says that of
// a path, too.
func unfit(err error) bool {
	return linuxerr.Equals(linuxerr.ENAMETOOLONG, err) || linuxerr.Equals(linuxerr.ENOMEM, err)
}

// tooLong reads words once more. A program that changes them meanwhile gets the other
// error.
func tooLong(t *kernel.Task, at hostarch.Addr) bool {
	_, err := words(t, at)
	return unfit(err)
}
