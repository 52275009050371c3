// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ScratchFD is the first of the numbers under which the shim passes files for
// scratch directories to the kernel, in the order of the mounts. No program
// inside gets them: they are higher than any descriptor may be, and are taken
// out before gVisor looks.
const ScratchFD = 1 << 20

// takeScratch turns files that are passed under these numbers into those that
// back scratch directories. gVisor has a flag for them, but says it only when
// there is a gofer; the files that it names then, which it has made somewhere
// in memory, give way to these.
//
// Where not each has one that takes its place, args stay as they are, and gVisor
// refuses numbers like these.
func takeScratch(args []string) []string {
	type file struct{ host, number int }
	var files []file
	var theirs, passed []int // where they are in args
	for i, a := range args {
		var f file
		rest, ok := strings.CutPrefix(a, "--pass-fd=")
		if n, err := fmt.Sscanf(rest, "%d:%d", &f.host, &f.number); ok && n == 2 && err == nil && f.number >= ScratchFD {
			passed, files = append(passed, i), append(files, f)
		}
		if strings.HasPrefix(a, filestoreFlag) {
			theirs = append(theirs, i)
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.number, b.number) })
	at := passed
	if len(theirs) > 0 && len(files) > 0 {
		if len(theirs) != len(files) {
			return args
		}
		at = theirs
	}
	for n, i := range at {
		if fd, err := strconv.Atoi(strings.TrimPrefix(args[i], filestoreFlag)); err == nil {
			_ = unix.Close(fd)
		}
		args[i] = filestoreFlag + strconv.Itoa(files[n].host)
	}
	if len(theirs) == 0 {
		return args
	}
	kept := args[:0]
	for i, a := range args {
		if !slices.Contains(passed, i) {
			kept = append(kept, a)
		}
	}
	return kept
}

const filestoreFlag = "--gofer-filestore-fds="
