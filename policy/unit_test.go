// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/google/go-cmp/cmp"
)

// anyOf wraps a parser so that tables can hold all of them.
func anyOf[T any](parse func(string) (T, error)) func(string) (any, error) {
	return func(s string) (any, error) { return parse(s) }
}

func TestUnits(t *testing.T) {
	size, dur, rate, iops, cpus := anyOf(ParseSize), anyOf(ParseDuration), anyOf(ParseRate), anyOf(ParseIOPS), anyOf(ParseCPUs)
	day := anyOf(func(s string) (time.Duration, error) { return ParseDurationFrom(s, 0, 24*time.Hour) })
	for _, tc := range []struct {
		parse func(string) (any, error)
		in    string
		want  any    // nil: an error
		hint  string // in the error
	}{
		{size, "256MiB", int64(256 << 20), ""},
		{size, "1KB", int64(1000), ""},
		{size, "4096", int64(4096), ""},
		{size, "1B", int64(1), ""},
		{size, "1PiB", int64(1 << 50), ""},
		{size, "1025TiB", nil, "1PiB"},
		{size, "9223372036854775807GiB", nil, "1PiB"},
		{size, "99999999999999999999", nil, "1PiB"},
		{size, "0", nil, "1B"},
		{size, "0GiB", nil, "1B"},
		{size, "-1", nil, "256MiB"},
		{size, "0100", nil, "leading 0"},
		{size, "", nil, "256MiB"},
		{size, "MiB", nil, "256MiB"},
		{size, "256M", nil, "did you mean 256MiB?"},
		{size, "256m", int64(256 << 20), ""},
		{size, "2g", int64(2 << 30), ""},
		{size, "5k", int64(5 << 10), ""},
		{size, "7b", int64(7), ""},
		{size, "2G", nil, "did you mean 2GiB?"},
		{size, "1gb", nil, "did you mean 1GB?"},
		{size, "1 GiB", nil, "did you mean 1GiB?"},
		{size, "1.5GiB", nil, "fractions"},
		{size, "1e9", nil, "units"},
		{size, "٣MiB", nil, "256MiB"},

		{dur, "1m30s", 90 * time.Second, ""},
		{dur, "720h", 720 * time.Hour, ""},
		{dur, "1ms", time.Millisecond, ""},
		{dur, "721h", nil, "720h"},
		{dur, "1us", nil, "1ms"},
		{dur, "0s", nil, "1ms"},
		{dur, "-3s", nil, "1ms"},
		{dur, "30", nil, "did you mean 30s?"},
		{dur, "5 min", nil, "did you mean 5m?"},
		{dur, "2d", nil, "did you mean 48h?"},
		{dur, "3 weeks", nil, "units"},
		{dur, "99999999999999999999h", nil, "the most is 720h, 30 days"},
		{dur, "99999999h", nil, "the most is 720h, 30 days"},
		{dur, "1m99999999h", nil, "the most is 720h, 30 days"},
		{dur, "-99999999h", nil, "1ms"},
		{dur, "99999999h1x", nil, "units"},
		{dur, "99999999", nil, "the most is 720h, 30 days"},
		{dur, "99999 d", nil, "in hours: the most is 720h"},
		{dur, "0", nil, "1ms"},
		{dur, "", nil, "such as"},

		{day, "24h", 24 * time.Hour, ""},
		{day, "0", time.Duration(0), ""},
		{day, "25h", nil, "the most is 24h"},
		{day, "2d", nil, "in hours: the most is 24h"},
		{day, "-1s", nil, "the least is 0s"},

		{rate, "50MiB/s", int64(50 << 20), ""},
		{rate, "1/s", int64(1), ""},
		{rate, "50MiB", nil, "did you mean 50MiB/s?"},
		{rate, "50M/s", nil, "did you mean 50MiB?"},
		{rate, "/s", nil, "256MiB"},
		{iops, "1000/s", int64(1000), ""},
		{iops, "1000", int64(1000), ""},
		{rate, "9PiB/s", nil, "the most is 1PiB/s"},
		{rate, "0/s", nil, "the least is 1B/s"},
		{iops, "0/s", nil, "between 1"},
		{iops, "1000000001", nil, "between 1 and 1000000000"},
		{iops, "0", nil, "between 1"},
		{iops, "x", nil, "such as"},
		{iops, "", nil, "such as"},
		{iops, "5KiB/s", nil, "whole number"},

		{cpus, "0.5", 0.5, ""},
		{cpus, "1024", 1024.0, ""},
		{cpus, ".01", 0.01, ""},
		{cpus, "0.009", nil, "between"},
		{cpus, "1025", nil, "between"},
		{cpus, "NaN", nil, "such as"},
		{cpus, "Inf", nil, "such as"},
		{cpus, "1e3", nil, "such as"},
		{cpus, "-1", nil, "such as"},
		{cpus, "1.2.3", nil, "such as"},
		{cpus, "500m", nil, "did you mean 0.5?"},
		{cpus, "m", nil, "such as"},
	} {
		got, err := tc.parse(tc.in)
		if tc.want == nil {
			if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(sandbox.Hint(err), tc.hint) {
				t.Errorf("%q: %v, error %v, hint %q; want a hint with %q", tc.in, got, err, sandbox.Hint(err), tc.hint)
			}
		} else if err != nil || got != tc.want {
			t.Errorf("%q: %v, error %v; want %v", tc.in, got, err, tc.want)
		}
	}
}

func TestFlags(t *testing.T) {
	ro, cow, rw := sandbox.ReadOnly, sandbox.CopyOnWrite, sandbox.ReadWrite
	mount, workspace, collect, watch := anyOf(ParseMount), anyOf(ParseWorkspace), anyOf(ParseCollect), anyOf(ParseWatch)
	for _, tc := range []struct {
		parse func(string) (any, error)
		in    string
		want  any
		hint  string
	}{
		{mount, "./data.csv", MountWish{"./data.csv", "", ro, false}, ""},
		{mount, "./data:/data", MountWish{"./data", "/data", ro, false}, ""},
		{mount, "./data:rw", MountWish{"./data", "", rw, false}, ""},
		{mount, "../d:/data:cow", MountWish{"../d", "/data", cow, false}, ""},
		{mount, "a b:/dev/shm", MountWish{"a b", "/dev/shm", ro, false}, ""},
		{mount, `./a\:b`, MountWish{"./a:b", "", ro, false}, ""},
		{mount, `./a\:b:/c\:d:cow`, MountWish{"./a:b", "/c:d", cow, false}, ""},
		{mount, `C\:\:x:ro`, MountWish{"C::x", "", ro, false}, ""},
		{mount, `a\b:/x`, MountWish{`a\b`, "/x", ro, false}, ""},
		{mount, `a\\:b`, MountWish{`a\:b`, "", ro, false}, ""},
		{mount, `a\:ro`, MountWish{"a:ro", "", ro, false}, ""},
		{mount, `\`, MountWish{`\`, "", ro, false}, ""},
		{mount, "./a:b", nil, `\: for a colon`},
		{mount, "", nil, "name a file"},
		{mount, ":/data", nil, "name a file"},
		{mount, "a:", nil, "SRC"},
		{mount, "a::ro", nil, "from the root"},
		{mount, "a:b", nil, "SRC"},
		{mount, "a:/b:rx", nil, "did you mean r"},
		{mount, "a:/b:readonly", nil, "did you mean ro?"},
		{mount, "a:rww", nil, "did you mean rw?"},
		{mount, "a:/b:c:ro", nil, "SRC"},
		{mount, "a:/b/../c", nil, "/c"},
		{mount, "a:/", nil, "--rootfs"},
		{mount, "a:/sys/fs", nil, "another"},
		{mount, "~/x", nil, "whole path"},
		{mount, "~", nil, "whole path"},
		{mount, "a\x00b", nil, "drop"},
		{mount, strings.Repeat("a/", 3000), nil, "4096"},
		{workspace, ".", MountWish{".", "", cow, false}, ""},
		{workspace, ".:rw", MountWish{".", "", rw, false}, ""},
		{workspace, `./a\:b`, MountWish{"./a:b", "", cow, false}, ""},
		{workspace, `a\:b\:c:rw`, MountWish{"a:b:c", "", rw, false}, ""},
		{workspace, "a:b", nil, `a colon in a name is written \:`},
		{workspace, ".:", nil, "known are"},
		{workspace, ".:/x", nil, "known are"},
		{workspace, "", nil, "name a file"},
		{watch, "cpu_percent > 80", WatchRule{When: "cpu_percent > 80", Metric: "cpu_percent", Value: 80, Do: "kill", From: "flag"}, ""},
		{
			watch, "memory>=1MiB for 10s do report",
			WatchRule{When: "memory >= 1MiB", Metric: "memory", OrMore: true, Value: 1 << 20, For: 10 * time.Second, Do: "report", From: "flag"}, "",
		},
		{watch, "cpu_percent > 80 for 10", nil, "did you mean 10s?"},
		{watch, "cpu_percent > 80 do kil", nil, "did you mean kill?"},
		{watch, "load > 80", nil, "known are"},
		{watch, "", nil, "cpu_percent > 80"},
		{collect, "out/*.png:./pics", CollectWish{"out/*.png", "./pics"}, ""},
		{collect, "out/**", CollectWish{"out/**", ""}, ""},
		{collect, "out/**:./a:b", CollectWish{"out/**", "./a:b"}, ""},
		{collect, `a\:b/*:./c`, CollectWish{`a\:b/*`, "./c"}, ""},
		{collect, `a\\:c`, CollectWish{`a\\`, "c"}, ""},
		{collect, "out/**:", nil, "name a file"},
		{collect, "../x", nil, "name the directory"},
	} {
		got, err := tc.parse(tc.in)
		if tc.want == nil {
			if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(sandbox.Hint(err), tc.hint) {
				t.Errorf("%q: %v, error %v, hint %q; want a hint with %q", tc.in, got, err, sandbox.Hint(err), tc.hint)
			}
		} else if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%q: error %v\n%s", tc.in, err, diff)
		}
	}
}

// TestLimitTable: the table has every limit, reads back what it writes, and
// its fields are not mixed up.
func TestLimitTable(t *testing.T) {
	var names []sandbox.LimitName
	for _, l := range limits() {
		names = append(names, l.name)
		var v sandbox.Limits
		for _, want := range []float64{l.min, l.max} {
			l.set(&v, want)
			text := l.format(want)
			got, err := l.parse(text)
			if err != nil || got != want || l.get(&v) != want {
				t.Errorf("%s: %v is written %s and read %v, %v", l.name, want, text, got, err)
			}
		}
		for _, other := range limits() {
			if other.name != l.name && other.get(&v) != 0 {
				t.Errorf("setting %s sets %s", l.name, other.name)
			}
		}
	}
	if diff := cmp.Diff(sandbox.LimitNames(), names); diff != "" {
		t.Error(diff)
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{
		1: "1B", 1000: "1KB", 1024: "1KiB", 1536 << 20: "1536MiB", 1e9: "1GB", 1 << 50: "1PiB", 1025: "1025B", 512000: "500KiB",
	} {
		if got := formatSize(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"wall", "cpus", "memory", "processes", "open_files", "output"}
	for got, want := range map[string]string{
		"memroy": "memory", "Memory": "memory", "process": "processes", "open-files": "open_files", "timeout": "wall",
		"out": "output", "colour": "", "": "", "x": "", strings.Repeat("memory", 10): "",
	} {
		if w := nearest(got, words); w != want {
			t.Errorf("%q: did you mean %q? want %q", got, w, want)
		}
	}
}

// TestStrength is the order of levels, all pairs.
func TestStrength(t *testing.T) {
	stronger := map[string]string{
		"process": "process docker gvisor microvm microvm:qemu microvm:firecracker vm", "docker": "docker gvisor microvm microvm:qemu microvm:firecracker vm",
		"gvisor": "gvisor microvm microvm:qemu microvm:firecracker vm", "microvm": "microvm microvm:qemu microvm:firecracker vm", "vm": "vm",
		"microvm:qemu": "microvm:qemu", "microvm:firecracker": "microvm:firecracker", "docker:runsc": "docker:runsc", "docker:kata": "docker:kata", "microvm:tcg": "microvm:tcg", "vm:tcg": "vm:tcg", "kubernetes": "kubernetes", "e2b": "e2b", "modal": "modal",
	}
	for _, b := range Isolations() {
		for _, a := range Isolations() {
			want := false
			for _, s := range strings.Fields(stronger[b]) {
				want = want || s == a
			}
			if atLeast(a, b) != want {
				t.Errorf("%s at least as strong as %s: %v", a, b, !want)
			}
		}
	}
	if atLeast("", "process") || atLeast("process", "") {
		t.Error("an unknown level compares")
	}
}

// fuzzFlag checks what holds for every parser of flags: a sentence and a hint,
// or a value, never a panic.
func fuzzFlag[T any](f *testing.F, parse func(string) (T, error), check func(t *testing.T, s string, v T), seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := parse(s)
		if err == nil {
			check(t, s, v)
			return
		}
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Kind != sandbox.ErrInvalid || e.Problem == "" || e.Hint == "" || len(err.Error()) > 1000 {
			t.Errorf("%q: %#v", s, err)
		}
	})
}

func FuzzParseSize(f *testing.F) {
	fuzzFlag(f, ParseSize, func(t *testing.T, s string, n int64) {
		back, err := ParseSize(formatSize(n))
		if n < 1 || n > maxSize || back != n || err != nil {
			t.Errorf("%q is %d, written %s", s, n, formatSize(n))
		}
	}, "256MiB", "1.5GB", "-1", "9999999999PiB", "1 KB")
}

func FuzzParseDuration(f *testing.F) {
	fuzzFlag(f, ParseDuration, func(t *testing.T, s string, d time.Duration) {
		if d < minDuration || d > maxDuration {
			t.Errorf("%q is %v", s, d)
		}
	}, "30s", "2d", "-1h", "9999999h", "5 min")
}

func FuzzParseRate(f *testing.F) {
	fuzzFlag(f, ParseRate, func(t *testing.T, s string, n int64) {
		if n < 1 || n > maxSize {
			t.Errorf("%q is %d", s, n)
		}
	}, "50MiB/s", "1/s", "/s", "50MiB")
}

func FuzzParseCPUs(f *testing.F) {
	fuzzFlag(f, ParseCPUs, func(t *testing.T, s string, n float64) {
		if !(n >= minCPUs && n <= maxCPUs) {
			t.Errorf("%q is %v", s, n)
		}
	}, "0.5", "500m", "NaN", "1e9", "-1")
}

func FuzzParseMount(f *testing.F) {
	fuzzFlag(f, ParseMount, checkWish, "./data.csv", "a:/b:ro", "a::", "~:/x:rw", "a:/../b", `a\:b:/c\:d:cow`, `a\\:/b`, `\`)
}

func FuzzParseWorkspace(f *testing.F) {
	fuzzFlag(f, ParseWorkspace, checkWish, ".", ".:rw", "a:b:c", `a\:b:rw`)
}

func FuzzParseWatch(f *testing.F) {
	fuzzFlag(f, ParseWatch, func(t *testing.T, s string, r WatchRule) {
		if !isMetric(r.Metric) || !(r.Value >= 0) || r.For < 0 || r.Do != WatchKill && r.Do != WatchReport {
			t.Errorf("%q is %+v", s, r)
		}
	}, "cpu_percent > 80", "memory >= 1MiB for 10s do report", "disk > 5 do x")
}

// checkWish: no target but absolute, clean ones; no source that a policy file
// would not take.
func checkWish(t *testing.T, s string, m MountWish) {
	if m.Source == "" || strings.Contains(m.Source+m.Target, "\x00") || m.Access.String() == "" {
		t.Errorf("%q is %+v", s, m)
	}
	if m.Target != "" && (!path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || m.Target == "/") {
		t.Errorf("%q has target %q", s, m.Target)
	}
	if !filepath.IsAbs(m.Source) && policyIsOpen(m) {
		t.Errorf("%q: a relative source was allowed", s)
	}
}

// policyIsOpen says whether the operator without a policy file gets m.
func policyIsOpen(m MountWish) bool {
	p, err := New(Options{})
	return err == nil && p.Decide(command(func(c *Call) { c.Mounts = []MountWish{m} })).Decision == Allow
}

func TestReadLimit(t *testing.T) {
	var l sandbox.Limits
	if err := ReadLimit(&l, sandbox.LimitOpenFiles, "1048576"); err != nil || l.OpenFiles != 1048576 {
		t.Errorf("%+v, %v", l, err)
	}
	for name, text := range map[sandbox.LimitName]string{sandbox.LimitOpenFiles: "1048577", sandbox.LimitInodes: "4294967297", "none": "1"} {
		if err := ReadLimit(&l, name, text); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%s %s: %v", name, text, err)
		}
	}
	// Who wants no limit at all is told what there is, and who mistypes is not.
	for _, tc := range []struct {
		name       sandbox.LimitName
		text, hint string
	}{
		{sandbox.LimitMemory, "0", "it cannot be taken away; the most is 1PiB"},
		{sandbox.LimitMemory, "unlimited", "it cannot be taken away; the most is 1PiB"},
		{sandbox.LimitMemory, "-1", "it cannot be taken away"},
		{sandbox.LimitCPUs, "0.0", "it cannot be taken away; the most is 1024"},
		{sandbox.LimitProcesses, "none", "it cannot be taken away; the most is 4194304"},
		{sandbox.LimitWall, "0s", "it cannot be taken away; the most is 720h0m0s"},
		{sandbox.LimitCPUTime, "0", "there is none unless one is set: leave it out"},
		{sandbox.LimitFileSize, "0B", "there is none unless one is set: leave it out"},
		{sandbox.LimitIO, "0MiB/s", "there is none unless one is set: leave it out"},
		{sandbox.LimitIOPS, "0/s", "there is none unless one is set: leave it out"},
		{sandbox.LimitMemory, "nonsense", "write a whole number and a unit"},
		{sandbox.LimitWall, "30", "did you mean 30s?"},
		{sandbox.LimitMemory, "-2", "write a whole number and a unit"},
	} {
		if err := ReadLimit(&l, tc.name, tc.text); !errors.Is(err, sandbox.ErrInvalid) || !strings.HasPrefix(sandbox.Hint(err), tc.hint) {
			t.Errorf("%s %s: %v, hint %q; want %q", tc.name, tc.text, err, sandbox.Hint(err), tc.hint)
		}
	}
	// What a caller sends that is in no range is named as it is.
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := p.Decide(&Call{Kind: RunCommand, Argv: []string{"true"}, Operator: true,
		Limits: sandbox.Limits{OpenFiles: 4000000, Explicit: map[sandbox.LimitName]bool{sandbox.LimitOpenFiles: true}}})
	if err := v.Err(); err == nil || !strings.Contains(err.Error(), "open_files cannot be 4000000") {
		t.Error(err)
	}
}

// A hint names what can be taken. What is recognised, and not in this version, would be
// refused in its turn.
func TestLevelHint(t *testing.T) {
	const names = "gvisor, process, docker, docker:runsc, docker:kata, microvm, microvm:qemu, microvm:firecracker, vm"
	for name, want := range map[string]string{
		"foo": "this version has " + names, "gvsor": "did you mean gvisor?", "podman": "did you mean docker?",
		"microvm:foo": "did you mean microvm?", "vm:foo": "this version has " + names, "microvm:qemo": "did you mean microvm:qemu?",
		"firecracker": "did you mean microvm?", "k8s": "did you mean kubernetes? It is not in this version, which has " + names,
	} {
		if got := sandbox.Hint(isLevel(name)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, name := range Isolations() {
		if err := isLevel(name); err != nil {
			t.Error(err)
		}
	}
}
