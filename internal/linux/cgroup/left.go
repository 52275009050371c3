// SPDX-License-Identifier: Apache-2.0

package cgroup

// Left is what the control groups of this process leave to more processes in them: the least
// of all of them, from its own up. A Max of 0 says that nothing bounds it.
type Left struct {
	Memory, MemoryMax int64 // bytes; pages of files that can be dropped count as left
	Tasks, TasksMax   int64 // processes and threads
}
