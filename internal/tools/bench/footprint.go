// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// footprint is what a daemon holds of the machine.
type footprint struct {
	rss                                                 int64 // bytes
	files, mounts, groups, goroutines, processes, state int
}

// footprint looks at the daemon. Control groups are those of every caisson of this
// machine.
func (d *daemon) footprint(ctx context.Context) (*footprint, error) {
	pid := d.cmd.Process.Pid
	f := &footprint{}
	own, err := memoryOf(pid, "status", "VmRSS:")
	if err != nil {
		return nil, err
	}
	f.rss = own
	files, ferr := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	mounts, merr := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	runs, rerr := filepath.Glob(filepath.Join(d.state, "run", "[a-z]*"))
	f.files, f.mounts, f.state = len(files), bytes.Count(mounts, []byte("\n")), len(runs)
	children, cerr := descendants(pid)
	f.processes = len(children)
	f.groups = groups("/sys/fs/cgroup")
	var gerr error
	f.goroutines, gerr = d.goroutines(ctx)
	return f, errors.Join(ferr, merr, rerr, cerr, gerr)
}

// since shows what changed.
func (f *footprint) since(b *footprint) string {
	show := func(what string, was, is int) string {
		if was == is {
			return fmt.Sprintf("%s %d", what, is)
		}
		return fmt.Sprintf("%s %d → %d (%+.0f %%)", what, was, is, 100*float64(is-was)/float64(max(was, 1)))
	}
	return strings.Join([]string{
		fmt.Sprintf("RSS %.1f → %.1f MB (%+.0f %%)", float64(b.rss)/1e6, float64(f.rss)/1e6, 100*float64(f.rss-b.rss)/float64(b.rss)),
		show("files", b.files, f.files), show("mounts", b.mounts, f.mounts), show("control groups", b.groups, f.groups),
		show("goroutines", b.goroutines, f.goroutines), show("processes", b.processes, f.processes), show("run directories", b.state, f.state),
	}, ", ")
}

var goroutineCount = regexp.MustCompile(`(?m)^caisson_goroutines (\d+)$`)

func (d *daemon) goroutines(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+d.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		return 0, err
	}
	m := goroutineCount.FindStringSubmatch(b.String())
	if m == nil {
		return 0, fmt.Errorf("/metrics has no goroutines: %s", resp.Status)
	}
	return strconv.Atoi(m[1])
}

// groups counts the control groups of sandboxes.
func groups(base string) (n int) {
	_ = filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error {
		// On version 1 it says whose base they are in; see cgroup.Create.
		if err == nil && e.IsDir() && strings.HasPrefix(strings.TrimPrefix(e.Name(), "caisson+"), "caisson-sbx_") {
			n++
			return filepath.SkipDir
		}
		return nil
	})
	return n
}

// descendants are the processes below pid, by their parents.
func descendants(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	below := map[int][]int{}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f := stat(child); f != nil {
			parent, _ := strconv.Atoi(f[1])
			below[parent] = append(below[parent], child)
		}
	}
	var all []int
	for next := below[pid]; len(next) > 0; next = next[1:] {
		all = append(all, next[0])
		next = append(next, below[next[0]]...)
	}
	return all, nil
}

// stat are the fields of a process from its state on; nil when it is gone.
func stat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return nil
	}
	return f
}

// processTimes are what a daemon and what is below it have used of the processor.
// What has ended does not count.
func processTimes(pid int) (daemon, below time.Duration, err error) {
	const tick = 10 * time.Millisecond // USER_HZ, which never is another
	of := func(pid int) (d time.Duration) {
		f := stat(pid)
		if f == nil {
			return 0
		}
		for _, s := range f[11:13] {
			n, _ := strconv.ParseInt(s, 10, 64)
			d += time.Duration(n) * tick
		}
		return d
	}
	children, err := descendants(pid)
	for _, c := range children {
		below += of(c)
	}
	return of(pid), below, err
}

// memories are a daemon's resident memory, and what is below it has in proportion.
func memories(pid int) (rss, pss int64, err error) {
	if rss, err = memoryOf(pid, "status", "VmRSS:"); err != nil {
		return 0, 0, err
	}
	children, err := descendants(pid)
	for _, c := range children {
		n, err := memoryOf(c, "smaps_rollup", "Pss:")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, 0, err
		}
		pss += n
	}
	return rss, pss, err
}

// memoryOf reads a line of kB from one of a process's files; 0 where it has none, as
// what has no memory.
func memoryOf(pid int, file, line string) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), line); found {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, nil
}
