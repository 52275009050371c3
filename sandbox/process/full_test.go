// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"slices"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/process"
)

func TestFullAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestFull") }

// What is full at the end is named, and nothing else: /dev/shm is memory, whose size is
// no limit that is set.
func TestFull(t *testing.T) {
	d := process.New(process.Options{})
	type limits = []sandbox.LimitName
	for name, tc := range map[string]struct {
		code string
		want limits
	}{
		"nothing":  {"echo a >/tmp/a; false", nil},
		"tmp":      {"cat /dev/zero >/tmp/a", limits{"tmp"}},
		"disk":     {"cat /dev/zero >/home/user/a", limits{"disk"}},
		"removed":  {"cat /dev/zero >/tmp/a; rm /tmp/a", nil},
		"inodes":   {"i=0; while :>/home/user/$i; do i=$((i+1)); done", limits{"inodes"}},
		"memory":   {"cat /dev/zero >/dev/shm/a", nil},
		"the host": {"exec 3>/dev/full; echo a >&3", nil},
	} {
		for road, run := range roads {
			t.Run(name+"/"+road, func(t *testing.T) {
				spec := fixture(t)
				for i := range spec.Scratch {
					sc := &spec.Scratch[i]
					sc.Size, sc.Inodes = 1<<20, 100
				}
				res, err := run(t.Context(), d, spec, &sandbox.Exec{Argv: []string{"/bin/sh", "-c", tc.code}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}})
				if err != nil || !slices.Equal(res.LimitsHit, tc.want) {
					t.Errorf("%+v, %v; want %v", res, err, tc.want)
				}
			})
		}
	}
}
