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
// ARCHITECTURE.md, "Nothing is looked up below a thread's name").
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

// parseMounts parses mountinfo(5). Anybody who may mount in a user namespace
// chooses part of it.
func parseMounts(b []byte) (mountTable, error) {
	var t mountTable
	for line := range bytes.Lines(b) {
		fields := strings.Split(strings.TrimSuffix(string(line), "\n"), " ")
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
		dash := -1
		for i := 6; i < len(fields); i++ {
			if fields[i] == "-" {
				dash = i
				break
			}
		}
		if dash < 0 || len(fields) < dash+2 {
			return nil, errors.New("a line of /proc/self/mountinfo is malformed")
		}
		root, point := unescape(fields[3]), unescape(fields[4])
		t = append(t, mountEntry{place{fields[2], root}, point, fields[dash+1]})
	}
	return t, nil
}

// unescape undoes the octal escapes of space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
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
