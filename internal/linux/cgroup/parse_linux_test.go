// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMounts(t *testing.T) {
	const info = `25 30 0:23 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 25 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct
32 25 0:30 / /sys/fs/cgroup/with\040blank rw shared:1 master:2 - cgroup cgroup rw,memory,nosuch
33 25 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 25 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
a line without its shape
35 25 0:33 / /short - cgroup`
	want := []mount{
		{root: "/docker/abc", point: "/sys/fs/cgroup/cpu,cpuacct", version: 1, controllers: []string{"cpu", "cpuacct"}},
		{root: "/", point: "/sys/fs/cgroup/with blank", version: 1, controllers: []string{"memory"}},
		{root: "/", point: "/sys/fs/cgroup/systemd", version: 1},
		{root: "/", point: "/sys/fs/cgroup/unified", version: 2},
	}
	if diff := cmp.Diff(want, parseMounts(info), cmp.AllowUnexported(mount{})); diff != "" {
		t.Error(diff)
	}
}

func TestParseOwn(t *testing.T) {
	got := parseOwn("12:cpu,cpuacct:/a\n4:memory:/b:c\n1:name=systemd:/d\n0::/e\nbad\n3:pids:relative\n")
	want := map[string]string{"cpu": "/a", "cpuacct": "/a", "memory": "/b:c", "name=systemd": "/d", "": "/e"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseNumbers(t *testing.T) {
	flat := parseFlat("oom 1\noom_kill 18446744073709551615\nsome avg10=0.00\nlone\nbad -1\n\n")
	if diff := cmp.Diff(map[string]uint64{"oom": 1, "oom_kill": 1<<64 - 1}, flat); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{7, 42}, parsePids("7\n0\n42\n-3\nx\n")); diff != "" {
		t.Error(diff)
	}
	if d, ok := parseDevice("259:3\n"); !ok || d != (Device{259, 3}) {
		t.Errorf("parseDevice: %v, %v", d, ok)
	}
	for _, bad := range []string{"", "1", "1:", ":1", "-1:2", "1:2:3", "4294967296:0"} {
		if d, ok := parseDevice(bad); ok {
			t.Errorf("parseDevice(%q) = %v", bad, d)
		}
	}
}

func TestQuota(t *testing.T) {
	for _, tt := range []struct {
		cpus          float64
		quota, period int64
	}{{1, 100_000, 100_000}, {0.5, 50_000, 100_000}, {64, 6_400_000, 100_000}, {0.01, 1000, 100_000}, {0.005, 5000, 1_000_000}, {minCPUs, 1000, 1_000_000}} {
		if q, p := quota(tt.cpus); q != tt.quota || p != tt.period {
			t.Errorf("quota(%g) = %d/%d, want %d/%d", tt.cpus, q, p, tt.quota, tt.period)
		}
	}
}

// FuzzParse: nothing that a kernel or a container runtime shows us breaks the
// parsers, and no path of theirs climbs out of its mount.
func FuzzParse(f *testing.F) {
	f.Add("31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/../../x\n4:memory:/a\n")
	f.Add(`31 23 0:28 /a\0 /m\134 rw x:1 - cgroup c rw,memory`, "4:memory:/a/../../b")
	f.Fuzz(func(t *testing.T, mountinfo, own string) {
		tab := table{mounts: parseMounts(mountinfo), own: parseOwn(own)}
		for _, m := range tab.mounts {
			if m.version != 1 && m.version != 2 {
				t.Fatalf("%+v", m)
			}
		}
		for _, c := range append([]string{""}, v1Controllers...) {
			m, _ := tab.mount(c)
			top := strings.TrimSuffix(filepath.Clean(m.point), "/")
			if dir, ok := tab.locate(c); ok && filepath.IsAbs(top) && !strings.HasPrefix(dir+"/", top+"/") {
				t.Fatalf("%q is outside %q", dir, m.point)
			}
		}
		parseFlat(own)
		for _, pid := range parsePids(own) {
			if pid <= 0 {
				t.Fatalf("pid %d", pid)
			}
		}
	})
}

func TestCheckName(t *testing.T) {
	long := strings.Repeat("x", maxName)
	for name, ok := range map[string]bool{
		"caisson": true, "caisson-sbx_A.9": true, "caisson" + long: true,
		"": false, "caisso": false, "xcaisson": false, "caisson/x": false, "caisson x": false, "caisson\n": false, "caissonü": false,
		"caisson\x00": false, "caisson" + long + "x": false, "caisson\xff": false,
	} {
		if err := checkName(name); (err == nil) != ok {
			t.Errorf("checkName(%q): %v", name, err)
		}
	}
}
