// SPDX-License-Identifier: Apache-2.0

package process

import (
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// full names the limits of writable directories in which there is no room now. That a
// call failed the kernel tells the program alone; a directory that is full when the
// program has ended is as near as it comes. It is called while init lives.
func (b *box) full() []sandbox.LimitName {
	root, err := unix.Open("/proc/"+strconv.Itoa(b.init)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(root)
	var limits []sandbox.LimitName
	look := func(target string, limit sandbox.LimitName) {
		st, err := statScratch(root, target)
		if err != nil {
			return
		}
		if st.Blocks > 0 && st.Bfree == 0 {
			limits = append(limits, limit)
		}
		if st.Files > 0 && st.Ffree == 0 {
			limits = append(limits, sandbox.LimitInodes)
		}
	}
	for _, sc := range b.spec.Scratch {
		if limit := sc.Limit(); limit != "" {
			look(sc.Target, limit)
		}
	}
	for _, m := range b.spec.Mounts {
		if m.Access == sandbox.CopyOnWrite && m.Dir {
			look(m.Target, sandbox.LimitDisk)
		}
	}
	slices.Sort(limits)
	return slices.Compact(limits)
}

// statScratch looks at a directory inside. No link is followed, which could lead out.
func statScratch(root int, target string) (st unix.Statfs_t, err error) {
	fd, err := unix.Openat2(root, "."+target, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_BENEATH,
	})
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	return st, unix.Fstatfs(fd, &st)
}
