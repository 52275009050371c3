// SPDX-License-Identifier: Apache-2.0

//go:build linux

package attack_test

import (
	"context"
	"maps"
	"os"
	"testing"

	"github.com/caisson-run/caisson/attack"
	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// boastful says of limits that they hold, and holds none of them.
type boastful struct {
	weak
	of []sandbox.LimitName
}

func (b boastful) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	c, err := b.Driver.Probe(ctx)
	if err != nil {
		return c, err
	}
	c.Limits = maps.Clone(c.Limits)
	for _, name := range b.of {
		c.Limits[name] = sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "so it says"}
	}
	return c, nil
}

// What one sandbox may take of the disk and of the processors from another is found
// out on a level without control groups that says it had them: both are red, and
// neither is where the level says that it cannot hold them.
func TestNoisyNeighbours(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as which a level without control groups is tried")
	}
	without := process.New(process.Options{NoCgroups: true})
	drop := weak{Driver: without, spec: func(s *sandbox.Spec) {
		s.Limits.IO, s.Limits.CPUs, s.Limits.Explicit = 0, 0, nil
		s.Limits.Memory = 0 // what forked processes share is counted for each of them there
	}}
	both := []string{"L12", "L13"}
	for _, v := range []struct {
		name   string
		driver sandbox.Driver
		want   attack.Verdict
	}{
		{"boastful", boastful{drop, []sandbox.LimitName{sandbox.LimitIO, sandbox.LimitCPUs, sandbox.LimitMemory}}, attack.Breach},
		{"honest", without, attack.NotApplicable},
	} {
		t.Run(v.name, func(t *testing.T) {
			for _, f := range attacktest.Run(t, attacktest.Level{Driver: v.driver}, both...).Cases {
				t.Logf("%s %s: %s", f.ID, f.Verdict, f.Reason)
				if f.Verdict != v.want {
					t.Errorf("%s is %s, want %s", f.ID, f.Verdict, v.want)
				}
			}
		})
	}
}
