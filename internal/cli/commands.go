// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/attack/probe"
)

// commands are all that there are, in the order of the help.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.runCommand(), a.replCommand(), a.changesCommand(), a.doctorCommand(), a.imageCommand(), a.templateCommand(), a.volumeCommand(), a.vmCommand(), a.policyCommand(), a.auditCommand(), a.attackCommand(),
		a.serveCommand(), a.mcpCommand(), a.keysCommand(), a.approvalsCommand(), a.toolsCommand(), a.sandboxCommand(),
		a.versionCommand(), a.completionCommand(), a.manCommand(),
	}
}

// probed is what `caisson attack` has inside of a sandbox.
func probed(args []string) (code int, inside bool) {
	if len(args) < 2 || args[1] != probe.Word {
		return 0, false
	}
	return probe.Main(args[2:]), true
}
