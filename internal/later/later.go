// SPDX-License-Identifier: Apache-2.0

// Package later has packages that few calls need initialise themselves when they
// are needed, and not at the start of every `caisson run`: that was 1.9 of 2.8 ms
// of package init, and 400 page faults.
//
// It does nothing by itself. A program that wants it imports
// [github.com/caisson-run/caisson/internal/later/postponed], which only
// cmd/caisson does: in somebody else's program what initialises itself is not
// ours to say. Whoever uses packages of a group calls its Ready before.
package later

import (
	"sync"
	"unsafe"
)

// The groups.
var (
	Conditions Group // CEL
	Registries Group // of container images
	Serving    Group // HTTP's API and MCP
	Schemas    Group // JSON Schema
	Policies   Group // YAML
)

// Group is packages that are needed together. The zero value has none.
type Group struct {
	once  sync.Once
	tasks []*Task
}

// Ready returns when the group's packages are initialised. It is safe for use from
// many goroutines, and costs nothing where they are.
func (g *Group) Ready() {
	g.once.Do(func() {
		for _, t := range g.tasks {
			t.run()
		}
	})
}

// Postpone takes what of tasks has not begun out of the start of the program, in
// this order. It is for package init, when there is one goroutine.
func (g *Group) Postpone(tasks []*Task) {
	for _, t := range tasks {
		if t.state == waiting {
			t.state = done
			g.tasks = append(g.tasks, t)
		}
	}
}

// Task is how the compiler writes a package's initialisation down (initTask in
// runtime/proc.go): this, and that many addresses of functions. The runtime goes
// through the tasks of all packages and leaves out those that are done.
type Task struct{ state, functions uint32 }

const waiting, underWay, done = 0, 1, 2

// run does what the runtime would have done (doInit1 there).
func (t *Task) run() {
	t.state = underWay
	first := unsafe.Add(unsafe.Pointer(t), unsafe.Sizeof(Task{}))
	for i := range uintptr(t.functions) {
		at := unsafe.Add(first, i*unsafe.Sizeof(uintptr(0)))
		(*(*func())(unsafe.Pointer(&at)))()
	}
	t.state = done
}
