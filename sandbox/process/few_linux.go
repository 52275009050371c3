// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"

	"github.com/caisson-run/caisson/sandbox"
)

// few says that it is the rlimit that holds a limit on processes. A control group counts
// the builder, too, until that is gone: a quick program of two processes would get one.
// No sandbox with an agent has so few.
func few(processes int) bool { return processes < sandbox.LeastAgentProcesses }

// alone says that the program of a sandbox has a user namespace of its own, in which the
// rlimit counts it and what it starts, and no other process. Where an ordinary user runs
// caisson, init and the builder are the same user as the program, and it would be a race
// whether the builder is still there when the program forks. It cannot be gone before:
// it waits for the program to be executed, as vfork has it.
func (p *plan) alone() bool {
	n := p.spec.Limits.Processes
	return n > 0 && few(n) && !p.ids.private
}

// standAlone has the program be in its namespace who it is in the sandbox's, with no more
// rights: to a namespace's first process the kernel gives all anew.
func (p *plan) standAlone(s *script) {
	s.doing("count the program's processes alone")
	u := p.spec.User
	s.mapUser(fmt.Sprintf("%d %d 1\n", u.UID, u.UID), fmt.Sprintf("%d %d 1\n", u.GID, u.GID))
	p.lose(s)
}

// spare is how far RLIMIT_NPROC lies above the limit: where the control group
// counts processes it is a second line, so that it is the group that refuses
// and says so. An unprivileged agent and init count as the user's own.
func (p *plan) spare() int {
	n := 0
	if p.group.pids && !few(p.spec.Limits.Processes) {
		n += 2
	}
	if !p.ids.private && !p.alone() {
		n++ // init
		if p.first.agent != nil {
			n += agentThreads
		}
	}
	return n
}
