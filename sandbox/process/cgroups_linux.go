// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/mounts"
)

// Java and Go go by the limits of their control group. They take it for one if the mount
// table has a file system of that type, and read files where it is mounted. So there is
// one, and over it lies a directory with files of ours. These are the same whatever
// control groups the host has, and also where there are none; of the host's nothing shows.

// groupsFile lies over /proc/cgroups, by which Java knows the version. Its name is gone
// when the root is made.
const groupsFile = "/dev/.cgroups"

// groupFiles are those of a control group of version 2 that has the sandbox's limits.
func (w *rootfs) groupFiles() [][2]string {
	l := &w.spec.Limits
	files := [][2]string{{"cgroup.controllers", "cpu memory pids\n"}}
	const period = 100_000 // as Linux has it, in microseconds
	if l.CPUs > 0 {
		files = append(files, [2]string{"cpu.max", fmt.Sprintf("%d %d\n", int64(l.CPUs*period), period)})
	}
	if l.Memory > 0 {
		files = append(files, [2]string{"memory.max", fmt.Sprintf("%d\n", l.Memory)},
			[2]string{"memory.swap.max", "0\n"}, [2]string{"memory.current", "4096\n"})
	}
	if l.Processes > 0 {
		files = append(files, [2]string{"pids.max", strconv.Itoa(l.Processes) + "\n"})
	}
	return files
}

// groups is proc_cgroups(5) of a host that has version 2 alone.
var groups = func() string {
	text := "#subsys_name\thierarchy\tnum_cgroups\tenabled\n"
	for _, name := range []string{"cpuset", "cpu", "cpuacct", "memory", "pids"} {
		text += name + "\t0\t1\t1\n"
	}
	return text
}()

// hasCgroup2 says that the kernel has the file system.
var hasCgroup2 = sync.OnceValue(func() bool {
	f, err := os.Open("/proc/filesystems")
	if err != nil {
		return false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasSuffix(s.Text(), "\tcgroup2") {
			return true
		}
	}
	return false
})

// showsGroup says whether there is such a directory: where the root has none for it, a
// layer over all of the root would be dear.
func (w *rootfs) showsGroup() bool {
	root := w.sources[0].mount
	return hasCgroup2() && mounts.FindPoint(root.Source, root.Target, "/sys", true) == nil
}

// buildGroup makes /sys/fs/cgroup. The namespace of control groups is the sandbox's own
// by then, and may mount what nothing inside gets to see.
func (w *rootfs) buildGroup(s *script) {
	if !w.showsGroup() {
		return
	}
	const top, at = "/sys", "/sys/fs/cgroup"
	s.doing("make %s", at)
	small := []string{"mode", "0755", "size", "65536", "nr_inodes", "16"}
	s.attach(s.filesystem("tmpfs", readWrite|unix.MOUNT_ATTR_NOEXEC, small...), top)
	s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, "/sys/fs", 0o755)
	s.call(unix.SYS_MKDIRAT, unix.AT_FDCWD, at, 0o755)
	s.attach(s.filesystem("cgroup2", nothing), at)
	s.attach(s.filesystem("tmpfs", readWrite|unix.MOUNT_ATTR_NOEXEC, small...), at)
	for _, f := range w.groupFiles() {
		s.file(at+"/"+f[0], f[1])
	}
	for _, dir := range []string{at, top} {
		m := s.place(dir)
		s.attributes(m, unix.MountAttr{Attr_set: nothing})
		s.close(m)
	}
}

// buildGroups writes down what shows as /proc/cgroups.
func (w *rootfs) buildGroups(s *script) {
	if w.showsGroup() {
		s.doing("make what shows as /proc/cgroups")
		s.file(groupsFile, groups)
	}
}

// showGroups lays it over the kernel's.
func (w *rootfs) showGroups(s *script) {
	if w.showsGroup() {
		s.call(unix.SYS_MOUNT, groupsFile, "/proc/cgroups", nil, unix.MS_BIND, nil).or(unix.ENOENT) // newer kernels can be without
	}
}
