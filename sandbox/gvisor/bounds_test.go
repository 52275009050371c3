// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/sandbox"
)

func TestCheckLimits(t *testing.T) {
	holds := map[sandbox.LimitName]sandbox.Clause{}
	for _, name := range sandbox.LimitNames() {
		holds[name] = sandbox.Clause{Enforcement: sandbox.Enforced}
	}
	holds[sandbox.LimitMemory] = sandbox.Clause{Enforcement: sandbox.Emulated}
	holds[sandbox.LimitIO] = sandbox.Clause{Enforcement: sandbox.Off, Detail: "no controller", Remedy: "reboot"}

	for name, tt := range map[string]struct {
		limits sandbox.Limits
		want   error
	}{
		"usual":             {sandbox.DefaultLimits(), nil},
		"none":              {sandbox.Limits{}, nil},
		"a default is off":  {sandbox.Limits{IO: 1}, nil},
		"negative":          {sandbox.Limits{Disk: -1}, sandbox.ErrInvalid},
		"negative share":    {sandbox.Limits{CPUs: -0.1}, sandbox.ErrInvalid},
		"written and off":   {sandbox.Limits{IO: 1, Explicit: map[sandbox.LimitName]bool{sandbox.LimitIO: true}}, sandbox.ErrUnsupported},
		"written, emulated": {sandbox.Limits{Memory: 1 << 20, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true}}, nil},
	} {
		err := checkLimits(&tt.limits, holds)
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if tt.want == sandbox.ErrUnsupported && (!strings.Contains(err.Error(), "io") || sandbox.Hint(err) != "reboot") {
			t.Errorf("%s: %v, hint %q", name, err, sandbox.Hint(err))
		}
	}
}

// However the writable places are cut, all of them together hold the limits.
func TestSharesHoldTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &sandbox.Spec{Limits: sandbox.Limits{Disk: rapid.Int64Range(1<<20, 1<<40).Draw(t, "disk"), Inodes: rapid.Int64Range(64, 1<<30).Draw(t, "inodes")}}
		for range rapid.IntRange(0, 8).Draw(t, "cow") {
			s.Mounts = append(s.Mounts, sandbox.Mount{Access: sandbox.CopyOnWrite})
		}
		for range rapid.IntRange(1, 8).Draw(t, "scratch") {
			s.Scratch = append(s.Scratch, sandbox.Scratch{Memory: rapid.Bool().Draw(t, "memory")})
		}
		scratch, cow := shares(s)
		bytes, files := cow*int64(len(s.Mounts)), int64(0)
		for _, sc := range scratch {
			if sc.Memory {
				continue
			}
			if sc.Size <= 0 || sc.Inodes <= 0 {
				t.Fatalf("a scratch directory is unbounded: %+v", sc)
			}
			bytes += sc.Size
			files += sc.Inodes
		}
		if bytes > s.Limits.Disk || files > s.Limits.Inodes {
			t.Fatalf("%d bytes and %d files, the limits are %d and %d", bytes, files, s.Limits.Disk, s.Limits.Inodes)
		}
	})
}
