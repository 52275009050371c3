// SPDX-License-Identifier: Apache-2.0

package cgroup

import "testing"

func TestLeft(t *testing.T) {
	const mib = 1 << 20
	v1 := "31 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n32 20 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	for name, c := range map[string]struct {
		mounts, own string
		files       map[string]string
		want        Left
	}{
		"nothing bounds it": {"", "0::/a", map[string]string{"a/memory.max": "max\n", "a/memory.current": "5\n", "a/pids.max": "max\n"}, Left{}},
		"its own group": {"", "0::/a", map[string]string{
			"a/memory.max": "104857600\n", "a/memory.current": "83886080\n", "a/memory.stat": "anon 1\ninactive_file 10485760\n", "a/pids.max": "100\n", "a/pids.current": "60\n",
		}, Left{30 * mib, 100 * mib, 40, 100}},
		"one above": {"", "0::/a/b/c", map[string]string{
			"a/memory.max": "104857600\n", "a/memory.current": "104857600\n", "a/b/memory.max": "209715200\n", "a/b/memory.current": "1048576\n", "a/b/c/pids.max": "8\n", "a/b/c/pids.current": "9\n",
		}, Left{0, 100 * mib, 0, 8}},
		"a container": {"", "0::/", map[string]string{"memory.max": "104857600\n", "memory.current": "1048576\n"}, Left{Memory: 99 * mib, MemoryMax: 100 * mib}},
		"version 1": {v1, "4:memory:/a\n3:pids:/b\n", map[string]string{
			"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.usage_in_bytes": "7\n",
			"memory/a/memory.limit_in_bytes": "104857600\n", "memory/a/memory.usage_in_bytes": "94371840\n", "memory/a/memory.stat": "inactive_file 5\ntotal_inactive_file 1048576\n",
			"pids/pids.current": "1\n", "pids/b/pids.max": "10\n", "pids/b/pids.current": "4\n",
		}, Left{11 * mib, 100 * mib, 6, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 0, "/", nil)
			if c.mounts != "" {
				f.file("/proc/self/mountinfo", c.mounts)
			}
			f.file("/proc/self/cgroup", c.own+"\n")
			for file, text := range c.files {
				f.file("/sys/fs/cgroup/"+file, text)
			}
			if got := f.kernel.left(); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}
