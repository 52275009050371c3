// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// mountCalls are refused to everybody inside, capabilities or not.
var mountCalls = []string{"mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "setns"}

// withholdNamespaces takes user namespaces and mounting away from code inside.
//
// The maker of a user namespace has every capability in it. gVisor then lets it
// mount an overlay whose lower layer is a directory with hidden paths in it,
// and an overlay looks below what is mounted there: the hidden directory shows
// (seen, not supposed). Linux's own answer, to refuse a private copy of a mount
// that has locked children, is missing. Nothing that runs here has a use for
// either; Docker's default profile refuses the same calls.
//
// An OCI seccomp filter could do it too, but gVisor's knows EPERM only, and a
// C library goes back from clone3 to clone on ENOSYS alone.
func withholdNamespaces(table *kernel.SyscallTable) {
	refused := make(map[string]error)
	for _, name := range mountCalls {
		refused[name] = unix.EPERM
	}
	// Its flags lie in memory that another thread may change after the look.
	refused["clone3"] = unix.ENOSYS
	for number, call := range table.Table {
		if err := refused[call.Name]; err != nil {
			call.Fn = fails(err)
		} else if call.Name == "clone" || call.Name == "unshare" {
			call.Fn = withoutUserNamespace(call.Fn)
		}
		table.Table[number] = call
	}
	table.Init() // copies Table to where the kernel looks
}

func fails(err error) kernel.SyscallFn {
	return func(*kernel.Task, uintptr, arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		return 0, nil, err
	}
}

// withoutUserNamespace refuses clone and unshare, whose first argument are the
// flags on every architecture that gVisor has, when they ask for one.
func withoutUserNamespace(call kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if args[0].Uint64()&unix.CLONE_NEWUSER != 0 {
			return 0, nil, unix.EPERM
		}
		return call(t, number, args)
	}
}

// syscallTables are those a program inside may use.
var syscallTables = []*kernel.SyscallTable{linux.AMD64, linux.ARM64}
