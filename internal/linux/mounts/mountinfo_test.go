// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]Mount{
		"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n": {"98:0", "/mnt1", "/mnt2", "ext3", "rw,errors=continue"},
		`40 1 0:5 /a\040b /c\134d\011e rw - tmpfs none rw`:                                 {"0:5", "/a b", "/c\\d\te", "tmpfs", "rw"},
		"40 1 0:5 / /x rw shared:1 master:2 propagate_from:3 unbindable - proc proc rw":    {"0:5", "/", "/x", "proc", "rw"},
		"40 1 0:5 / /x rw - tmpfs  rw":                                                     {"0:5", "/", "/x", "tmpfs", "rw"}, // a source without a name
		"40 1 0:5 / - rw - tmpfs - rw":                                                     {"0:5", "/", "-", "tmpfs", "rw"},
		`40 1 0:5 /\04 /\999\ rw - tmpfs none rw`:                                          {"0:5", `/\04`, `/\999\`, "tmpfs", "rw"},
		"40 1 0:5 / /x rw - fuse.a\\040b none rw":                                          {"0:5", "/", "/x", "fuse.a b", "rw"},
	} {
		got, ok := Parse(line)
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Errorf("%q: %v (-want +got)\n%s", line, ok, diff)
		}
	}
	for _, line := range []string{
		"", "\n", "36 35 98:0 /mnt1 /mnt2", "36 35 98:0 /mnt1 /mnt2 rw", "36 35 98:0 /mnt1 /mnt2 rw - ext3 /dev/root",
		"36 35 98:0 /mnt1 /mnt2 rw master:1 ext3 /dev/root rw",
	} {
		if m, ok := Parse(line); ok {
			t.Errorf("%q: %+v", line, m)
		}
	}
}

// Each line that this kernel writes is read.
func TestOwn(t *testing.T) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Skip("needs /proc/self/mountinfo")
	}
	for line := range strings.Lines(string(b)) {
		if m, ok := Parse(line); !ok || m.Point == "" || m.Type == "" {
			t.Errorf("%q: %+v", line, m)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n")
	f.Add(`40 1 0:5 /a\040b /c\134d\011e rw - tmpfs none rw`)
	f.Fuzz(func(t *testing.T, line string) {
		m, ok := Parse(line)
		if !ok && m != (Mount{}) {
			t.Errorf("%q: no mount, and %+v", line, m)
		}
		if len(m.Root)+len(m.Point) > len(line) {
			t.Errorf("%q: longer than the line: %+v", line, m)
		}
	})
}
