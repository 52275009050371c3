// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/policy"
)

// An ID is what was given out, letter by letter, or means nothing.
func FuzzID(f *testing.F) {
	box := "i" + strings.Repeat("a", 20)
	f.Add(prefix + "00000000000000ff" + box)
	f.Add(prefix + "ffffffffffffffff" + box)
	f.Add(fileID(box, "dir/x.txt"))
	f.Add(filePrefix + box + "_" + Encode("../x"))
	f.Add(filePrefix + box + "_" + Encode("/etc/passwd\x00"))
	f.Fuzz(func(t *testing.T, id string) {
		if box, made, ok := parseID(id); ok && fmt.Sprintf("%s%016x%s", prefix, made, box) != id {
			t.Errorf("%q means %q of %d", id, box, made)
		}
		p, err := parseFileID(id)
		if err != nil {
			return
		}
		if fileID(p.box, p.rel) != id {
			t.Errorf("%q means %+v, whose ID is %q", id, p, fileID(p.box, p.rel))
		}
		if !strings.HasPrefix(p.path(), policy.DataDir+"/") || strings.Contains(p.path(), "\x00") {
			t.Errorf("%q leads to %q", id, p.path())
		}
	})
}
