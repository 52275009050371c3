// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
)

// eater takes more memory than it may have; wrapped, what it takes is not the
// program's own, which goes on to say so.
const (
	eater   = `b = bytearray(10**9)`
	wrapped = `python3 -c "` + eater + `"; exit $?`
)

// A memory limit is named however the program is followed: by the level, through the
// agent, and in a persistent sandbox. The agent's word, that the program was
// killed or nothing at all, comes before the level's.
func TestMemoryLimitIsNamed(t *testing.T) {
	limits := caisson.Limits{Memory: 192 << 20} // the agent is this whole test program, and is in memory, too
	for _, level := range []string{"gvisor", "process"} {
		t.Run(level, func(t *testing.T) {
			caps, err := caisson.Drivers()[level].Probe(t.Context())
			if held := caps.Limits[sandbox.LimitMemory]; err != nil || held.Enforcement != sandbox.Enforced {
				t.Skipf("needs a host that holds a memory limit: %s %v", held.Detail, err)
			}
			for name, collect := range map[string][]caisson.Collect{"by the level": nil, "through the agent": {{Pattern: "x", Dest: t.TempDir()}}} {
				for _, argv := range [][]string{{"python3", "-c", eater}, {"sh", "-c", wrapped}} {
					res, err := caisson.Run(t.Context(), caisson.Request{Command: argv, Isolation: level, Limits: limits, Collect: collect})
					if err != nil {
						t.Errorf("%s, %q: %v", name, argv[0], err)
						continue
					}
					namesMemory(t, name, res)
				}
			}
			l := openLiving(t, filepath.Join(t.TempDir(), "state"), level)
			for _, argv := range [][]string{{"python3", "-c", eater}, {"sh", "-c", wrapped}} {
				s, err := l.Create(t.Context(), l.key, persistent.Create{Limits: sandbox.Limits{
					Memory: limits.Memory, Explicit: map[sandbox.LimitName]bool{sandbox.LimitMemory: true},
				}})
				if err != nil {
					t.Fatal(err)
				}
				c := &session.Call{}
				c.Argv = argv
				res, err := l.Handle(l.key, s.ID).Exec(t.Context(), c, session.IO{})
				if err != nil {
					t.Errorf("in a living sandbox, %q: %v", argv[0], err)
					continue
				}
				namesMemory(t, "in a living sandbox", res)
			}
		})
	}
}

func namesMemory(t *testing.T, how string, res *sandbox.Result) {
	t.Helper()
	if res.Status != sandbox.StatusResourceExceeded || res.Resource != sandbox.LimitMemory || res.Signal != "SIGKILL" || res.Reason == "" {
		t.Errorf("%s: %s, resource %q, signal %q, code %v, %q", how, res.Status, res.Resource, res.Signal, res.ExitCode, res.Reason)
	}
}
