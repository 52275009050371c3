// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/sandbox"
)

// However many writable directories there are, together they hold the limit.
func TestShareHoldsTheSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &sandbox.Spec{Limits: sandbox.Limits{Disk: rapid.Int64Range(4096, 1<<40).Draw(t, "disk"), Inodes: rapid.Int64Range(16, 1<<30).Draw(t, "inodes")}}
		for range rapid.IntRange(1, 10).Draw(t, "n") {
			s.Scratch = append(s.Scratch, sandbox.Scratch{Memory: rapid.Bool().Draw(t, "memory")})
		}
		share(s)
		var size, files int64
		for _, d := range s.Scratch {
			if d.Memory && (d.Size != 0 || d.Inodes != 0) || !d.Memory && (d.Size <= 0 || d.Inodes <= 0) {
				t.Fatalf("%+v", d)
			}
			size, files = size+d.Size, files+d.Inodes
		}
		if size > s.Limits.Disk || files > s.Limits.Inodes {
			t.Fatalf("%d bytes of %d, %d files of %d", size, s.Limits.Disk, files, s.Limits.Inodes)
		}
	})
}
