// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"os"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/boot"
)

// Reexec must be the first statement of main in every program that runs
// sandboxes.
//
// caisson needs no other file than the program that uses it: it starts that
// same program again as the keeper of a sandbox, as the kernel inside it, as
// the process that serves files to it, and as the router of its network. Reexec
// takes over in those and does not return; in the program itself it returns at once.
//
// The program must be built with CGO_ENABLED=0: there is no dynamic linker
// where it is started again. One that is not is refused by that name, and so is
// one that has not called Reexec: what it starts would start the next, without end.
func Reexec() {
	reexecEngine()
	boot.Init()
	agent.InitFetch()
	if len(os.Args) > 0 && os.Args[0] == guest.AgentArgv0 {
		agent.Main()
	}
	itself.Store(true)
}
