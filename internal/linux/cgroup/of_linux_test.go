// SPDX-License-Identifier: Apache-2.0

package cgroup

import "testing"

// A process in a group of ours is found there.
func TestOf(t *testing.T) {
	g := group(t, host(t), Limits{Memory: 64 << 20, Pids: 20})
	p := start(t, g, "burn")
	of := Of(p.Process.Pid)
	if of == nil {
		t.Fatal("no group is found")
	}
	u := of.Usage()
	if u.CPU == nil || u.Memory == nil || u.Processes == nil || *u.Processes < 1 {
		t.Errorf("usage %+v", u)
	}
	if of.OOMKilled() {
		t.Error("nothing was killed")
	}
	if Of(1<<30) != nil {
		t.Error("a process that does not exist is in a group")
	}
}
