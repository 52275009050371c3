// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"bytes"
	"errors"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/mounts"
)

// place is where something lies in its own filesystem, whatever it is mounted
// on: two paths through different bind mounts to one directory have one place.
type place struct {
	dev  string // "259:2"
	path string // from the filesystem's root
}

// within says whether p is q or lies below it.
func (p place) within(q place) bool {
	return p.dev == q.dev && p.dev != "" && within(p.path, q.path)
}

// within says whether p is dir or lies below it; both are absolute and clean.
func within(p, dir string) bool {
	if dir == "/" {
		return true
	}
	return p == dir || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// mountEntry is one line of /proc/self/mountinfo.
type mountEntry struct {
	root   place  // what is mounted
	point  string // where
	fstype string
}

// mountTable is all mounts, in the order in which they were made.
type mountTable []mountEntry

// readMounts reads the mounts that the calling thread sees. That is another thread's
// list where both see the same: by the thread's own name it would be dearer (see
// docs/decisions/024-no-thread-names.md).
func readMounts() (mountTable, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !hasRoot(b) {
		b, err = os.ReadFile("/proc/thread-self/mountinfo")
	}
	if err != nil {
		return nil, err
	}
	return parseMounts(b)
}

// hasRoot reports whether a list has the mount in which the calling thread's root lies.
// Then it is of the thread's mount namespace: each mount has a number of its own, and
// is in one namespace.
func hasRoot(b []byte) bool {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_MNT_ID, &st) != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return false
	}
	line := strconv.AppendUint(nil, st.Mnt_id, 10)
	line = append(line, ' ')
	return bytes.HasPrefix(b, line) || bytes.Contains(b, append([]byte{'\n'}, line...))
}

// parseMounts reads a whole list.
func parseMounts(b []byte) (mountTable, error) {
	var t mountTable
	for line := range strings.Lines(string(b)) {
		m, ok := mounts.Parse(line)
		if !ok {
			return nil, errors.New("a line of /proc/self/mountinfo is malformed")
		}
		t = append(t, mountEntry{place{m.Device, m.Root}, m.Point, m.Type})
	}
	return t, nil
}

// place translates a real path into its place. Later mounts hide earlier ones
// on the same point.
func (t mountTable) place(real string) place {
	best := -1
	for i, m := range t {
		if within(real, m.point) && (best < 0 || len(m.point) >= len(t[best].point)) {
			best = i
		}
	}
	if best < 0 {
		return place{}
	}
	m := t[best]
	return place{m.root.dev, path.Join(m.root.path, strings.TrimPrefix(real, m.point))}
}

// below returns the mounts that a directory shows.
func (t mountTable) below(real string) []mountEntry {
	var out []mountEntry
	for _, m := range t {
		if m.point != real && within(m.point, real) {
			out = append(out, m)
		}
	}
	return out
}
