// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sentry

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

func TestNamespacesAreWithheld(t *testing.T) {
	for _, table := range syscallTables {
		withholdNamespaces(table)
		for name, want := range map[string]error{
			"mount": unix.EPERM, "umount2": unix.EPERM, "pivot_root": unix.EPERM, "move_mount": unix.EPERM, "open_tree": unix.EPERM,
			"fsopen": unix.EPERM, "fsconfig": unix.EPERM, "fsmount": unix.EPERM, "setns": unix.EPERM, "clone3": unix.ENOSYS,
			"clone": unix.EPERM, "unshare": unix.EPERM,
		} {
			number, err := table.LookupNo(name)
			if err != nil {
				t.Errorf("gVisor knows no %s any more: %v", name, err)
				continue
			}
			// What is refused is refused before the task is looked at.
			args := arch.SyscallArguments{{Value: unix.CLONE_NEWUSER | unix.CLONE_NEWNS}}
			if _, _, err := table.Lookup(number)(nil, number, args); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	}
}

// A later gVisor may know more ways to mount or to enter a namespace.
func TestNoNewMountCall(t *testing.T) {
	known := append(slices.Clone(mountCalls), "clone", "clone3", "unshare")
	for _, table := range syscallTables {
		for number, call := range table.Table {
			if call.SupportLevel == kernel.SupportUnimplemented || slices.Contains(known, call.Name) {
				continue
			}
			for _, part := range []string{"mount", "fsopen", "fsconfig", "open_tree", "pivot", "unshare", "setns", "clone"} {
				if strings.Contains(call.Name, part) {
					t.Errorf("syscall %d, %s, is new: may code inside have it?", number, call.Name)
				}
			}
		}
	}
}
