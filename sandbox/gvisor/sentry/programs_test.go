// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sentry

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// A later gVisor may know more ways to execute, or to map code.
func TestExecuteCalls(t *testing.T) {
	held := []string{"execve", "execveat", "mmap"}
	for _, table := range syscallTables {
		for _, name := range held {
			number, err := table.LookupNo(name)
			if err != nil {
				t.Errorf("gVisor knows no %s any more: %v", name, err)
				continue
			}
			theirs := reflect.ValueOf(table.Lookup(number)).Pointer()
			all := &kernel.SyscallTable{Table: map[uintptr]kernel.Syscall{number: table.Table[number]}}
			new(programs).hold(all)
			if reflect.ValueOf(all.Table[number].Fn).Pointer() == theirs {
				t.Errorf("%s is not held", name)
			}
		}
		for number, call := range table.Table {
			if call.SupportLevel == kernel.SupportUnimplemented || slices.Contains(held, call.Name) {
				continue
			}
			for _, part := range []string{"exec", "mmap", "uselib", "io_uring_setup"} {
				if strings.Contains(call.Name, part) && !slices.Contains([]string{"kexec_load", "kexec_file_load", "uselib", "io_uring_setup"}, call.Name) {
					t.Errorf("syscall %d, %s, is new: what does it execute?", number, call.Name)
				}
			}
		}
	}
}

func TestParsePrograms(t *testing.T) {
	if p, err := parsePrograms(""); p != nil || err != nil {
		t.Errorf("no list: %+v, %v", p, err)
	}
	p, err := parsePrograms(`{"files":["/usr/bin/cat","/lib64/ld.so"],"trees":["/usr/lib/git"],"loaders":["/lib64/ld.so"],"closed":["/usr/bin"],"restart":true}`)
	if err != nil || !p.restart.Load() {
		t.Fatalf("%+v, %v", p, err)
	}
	for place, want := range map[string][2]bool{ // executed, and closed
		"/usr/bin/cat": {true, false}, "/usr/bin/id": {false, true}, "/lib64/ld.so": {false, false}, "/usr/lib/git/git-log": {true, false},
		"/usr/lib/git": {false, false}, "/usr/lib/gitx": {false, false}, "": {false, false}, "/usr/bin/cat (deleted)": {false, true}, "cat": {false, false},
	} {
		if got := [2]bool{p.lists(place), p.closes(place)}; got != want {
			t.Errorf("%q: %v, want %v", place, got, want)
		}
	}
	for _, bad := range []string{"{", `{"file":[]}`, `[]`, `{"files":"/bin/sh"}`} {
		if p, err := parsePrograms(bad); err == nil {
			t.Errorf("%s: %+v", bad, p)
		}
	}
}

func TestInterpreter(t *testing.T) {
	for line, want := range map[string][]string{
		"/bin/sh\n": {"/bin/sh"}, " \t/bin/sh -e x \ny": {"/bin/sh", "-e x "}, "/usr/bin/env python3": {"/usr/bin/env", "python3"}, "": nil, "  \n/bin/sh": nil, "\n": nil,
	} {
		if got := interpreter([]byte(line)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
