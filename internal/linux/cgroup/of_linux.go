// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"path/filepath"
	"strconv"
)

// Of is the group that another process is in, for Usage, OOMKilled and LimitSockets alone:
// it is another owner's, so nothing may be killed in it, changed or removed. It is nil
// where the process or its group cannot be seen, and where the group is the top of its
// hierarchy, which says nothing about the process.
func Of(pid int) *Group {
	k := realKernel()
	t := k.table()
	t.own = parseOwn(read(filepath.Join("/proc", strconv.Itoa(pid), "cgroup")))
	g := &Group{name: "of " + strconv.Itoa(pid), version: 1, dirs: make(map[string]string), k: k}
	for _, c := range v1Controllers {
		if dir, ok := t.current(c); ok && t.own[c] != "/" {
			g.dirs[ofV1(c)] = dir
		}
	}
	if len(g.dirs) > 0 {
		return g
	}
	if dir, ok := t.current(""); ok && t.own[""] != "/" {
		g.version, g.dirs[""] = 2, dir
		return g
	}
	return nil
}

// LimitSockets bounds the buffers of internet sockets beside a memory limit,
// which on version 1 is a limit of its own that engines no longer set. It is the
// one thing that may be changed in a group of Of, and needs root. On version 2
// the memory limit holds them.
func (g *Group) LimitSockets(memory int64) error {
	if g.version == 2 || g.dir(Memory) == "" {
		return nil
	}
	return g.limitSockets1(memory)
}

// ofV1 is the key of a version 1 controller in Group.dirs.
func ofV1(controller string) string {
	if name := v2Name(controller); name != "" {
		return name
	}
	return controller
}
