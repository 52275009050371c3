// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheckLimits(t *testing.T) {
	holds := map[LimitName]Clause{}
	for _, name := range LimitNames() {
		holds[name] = Clause{Enforcement: Enforced}
	}
	holds[LimitMemory] = Clause{Enforcement: Emulated}
	holds[LimitIO] = Clause{Enforcement: Off, Detail: "no controller", Remedy: "reboot"}

	for name, tt := range map[string]struct {
		limits Limits
		want   error
	}{
		"usual":              {DefaultLimits(), nil},
		"none":               {Limits{}, nil},
		"a default is off":   {Limits{IO: 1}, nil},
		"negative":           {Limits{Disk: -1}, ErrInvalid},
		"negative share":     {Limits{CPUs: -0.1}, ErrInvalid},
		"memory for nothing": {Limits{Memory: LeastMemory - 1}, ErrInvalid},
		"files for nothing":  {Limits{OpenFiles: LeastOpenFiles - 1}, ErrInvalid},
		"least files":        {Limits{OpenFiles: LeastOpenFiles, Processes: 1}, nil},
		"written and off":    {Limits{IO: 1, Explicit: map[LimitName]bool{LimitIO: true}}, ErrUnsupported},
		"written, emulated":  {Limits{Memory: LeastMemory, Explicit: map[LimitName]bool{LimitMemory: true}}, nil},
	} {
		err := tt.limits.Check(holds)
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if tt.want == ErrUnsupported && (!strings.Contains(err.Error(), "io") || Hint(err) != "reboot") {
			t.Errorf("%s: %v, hint %q", name, err, Hint(err))
		}
	}
}

func TestCheckAgent(t *testing.T) {
	for name, tt := range map[string]struct {
		limits Limits
		least  string // in the hint; empty: it is enough
	}{
		"usual":         {DefaultLimits(), ""},
		"none":          {Limits{}, ""},
		"least":         {Limits{OpenFiles: LeastAgentFiles, Processes: LeastAgentProcesses}, ""},
		"few files":     {Limits{OpenFiles: LeastAgentFiles - 1}, "32"},
		"few processes": {Limits{Processes: LeastAgentProcesses - 1}, "16"},
	} {
		err := tt.limits.CheckAgent()
		if (err == nil) != (tt.least == "") || err != nil && (!errors.Is(err, ErrInvalid) || !strings.HasSuffix(Hint(err), tt.least)) {
			t.Errorf("%s: %v, hint %q, want %q", name, err, Hint(err), tt.least)
		}
	}
}

// However the writable places are cut, all of them together hold the limits.
func TestSharesHoldTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &Spec{Limits: Limits{Disk: rapid.Int64Range(1<<20, 1<<40).Draw(t, "disk"), Inodes: rapid.Int64Range(64, 1<<30).Draw(t, "inodes")}}
		for range rapid.IntRange(0, 8).Draw(t, "cow") {
			s.Mounts = append(s.Mounts, Mount{Access: CopyOnWrite})
		}
		for range rapid.IntRange(1, 8).Draw(t, "scratch") {
			s.Scratch = append(s.Scratch, Scratch{Memory: rapid.Bool().Draw(t, "memory")})
		}
		scratch, cow := s.Shares()
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
