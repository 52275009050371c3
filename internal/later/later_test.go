// SPDX-License-Identifier: Apache-2.0

package later

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	_ "go.yaml.in/yaml/v4" // has something to initialise
)

//go:linkname yamlTask go.yaml.in/yaml/v4..inittask
var yamlTask struct {
	Task
	pcs [1]uintptr
}

// TestLayout: this Go writes tasks down as Task has it.
func TestLayout(t *testing.T) {
	if yamlTask.state != done || yamlTask.functions == 0 || yamlTask.functions > 100 {
		t.Fatalf("the task of a package that is initialised: %+v", yamlTask.Task)
	}
	for i := range uintptr(yamlTask.functions) {
		pc := *(*uintptr)(unsafe.Add(unsafe.Pointer(&yamlTask.pcs), i*unsafe.Sizeof(i)))
		if f := runtime.FuncForPC(pc); f == nil || !strings.HasPrefix(f.Name(), "go.yaml.in/yaml/v4.") || !strings.Contains(f.Name(), "init") {
			t.Errorf("function %d is %v", i, f)
		}
	}
}

// taskOf is a task of the given functions.
func taskOf(fs ...func()) *Task {
	task := &struct {
		Task
		pcs [4]uintptr
	}{Task: Task{functions: uint32(len(fs))}}
	for i := range fs {
		task.pcs[i] = **(**uintptr)(unsafe.Pointer(&fs[i]))
	}
	return &task.Task
}

var ran []string // by the functions below, which have no closure

func a() { ran = append(ran, "a") }
func b() { ran = append(ran, "b") }
func c() { ran = append(ran, "c") }

// TestReady: what has not begun runs once, in order, when it is asked for, and is
// done for the runtime until then.
func TestReady(t *testing.T) {
	first, second, begun := taskOf(a, b), taskOf(c), taskOf(c)
	begun.state = underWay
	var g Group
	g.Postpone([]*Task{first, begun, second})
	if len(ran) > 0 || first.state != done || second.state != done || begun.state != underWay {
		t.Errorf("before: %q, states %d %d %d", ran, first.state, second.state, begun.state)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(g.Ready)
	}
	all.Wait()
	if got := strings.Join(ran, ""); got != "abc" || first.state != done {
		t.Errorf("%q was run, state %d", got, first.state)
	}
}
