// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// ScratchFD is the first of the numbers under which the shim passes files for
// scratch directories to the kernel, in the order of the mounts. No program
// inside gets them: they are higher than any descriptor may be, and are taken
// out before gVisor looks.
const ScratchFD = 1 << 20

// takeScratch turns files that are passed under these numbers into those that
// back scratch directories. gVisor has a flag for them, but says it only when
// there is a gofer.
func takeScratch(args []string) {
	type file struct{ host, number int }
	var at []int
	var files []file
	for i, a := range args {
		var f file
		rest, ok := strings.CutPrefix(a, "--pass-fd=")
		if n, err := fmt.Sscanf(rest, "%d:%d", &f.host, &f.number); ok && n == 2 && err == nil && f.number >= ScratchFD {
			at, files = append(at, i), append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.number, b.number) })
	for n, i := range at {
		args[i] = fmt.Sprintf("--gofer-filestore-fds=%d", files[n].host)
	}
}
