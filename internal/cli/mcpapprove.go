// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/mcp"
	"github.com/caisson-run/caisson/sandbox"
)

func (a *app) mcpApproveCommand() *cobra.Command {
	f := &gatewayFlags{}
	cmd := &cobra.Command{
		Use:   "approve [--policy FILE] [SERVER...] | approve [flags] --tool PATTERN -- COMMAND [ARG...]",
		Short: "Show what servers say of their tools, and approve it",
		Long: `Start servers as caisson mcp gateway does, with the same flags, and show each
tool that is new or says something else than when it was approved, beside what
it said then. Callers get what is approved here; a gateway that runs already
offers it when it next lists the server's tools.

It asks at the terminal; --yes approves without asking.`,
		Example: `  caisson mcp approve --policy servers.yaml
  caisson mcp approve --tool '*' --mount ./server.js -- node server.js`,
		Args:          cobra.ArbitraryArgs,
		RunE:          func(cmd *cobra.Command, args []string) error { return a.approveServers(cmd, f, args) },
		SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true,
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.yes, "yes", false, "approve without asking")
	return cmd
}

func (a *app) approveServers(cmd *cobra.Command, f *gatewayFlags, args []string) (err error) {
	ctx, stop := signal.NotifyContext(contextOf(cmd), os.Interrupt, syscall.SIGTERM)
	defer stop()
	g, end, err := a.gateway(ctx, cmd, f, args)
	if err != nil {
		return err
	}
	defer end()
	reviews, err := g.Review(ctx)
	if err != nil {
		return err
	}
	for _, r := range reviews {
		if !a.showReview(r) {
			fmt.Fprintf(a.out, "%s: nothing to approve: %d tools are as they were\n", r.Server, len(r.Now.Tools))
			continue
		}
		if !f.yes {
			if !isTerminal(a.in) {
				return &sandbox.Error{Op: cmd.CommandPath(), Kind: sandbox.ErrDenied, Problem: "no approver can be asked here", Hint: "run it at a terminal, or give --yes"}
			}
			fmt.Fprintf(a.out, "Approve the tools of %s as they are now? [y/N] ", r.Server)
			answer, _ := bufio.NewReader(a.in).ReadString('\n')
			if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
				fmt.Fprintf(a.out, "%s: not approved\n", r.Server)
				a.code = exitDenied
				continue
			}
		}
		if err := g.Approve(r); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "%s: approved\n", r.Server)
	}
	return nil
}

// showReview prints what differs, and says whether anything does.
func (a *app) showReview(r *mcp.Review) bool {
	differs := r.Was == nil
	for _, t := range r.Tools {
		if t.State == "approved" {
			continue
		}
		differs = true
		fmt.Fprintf(a.out, "%s: %s is %s", r.Server, t.Name, t.State)
		if t.Hidden != "" {
			fmt.Fprintf(a.out, " (callers do not get it: %s)", t.Hidden)
		}
		fmt.Fprintln(a.out)
		a.showTool("  - ", t.Was)
		a.showTool("  + ", t.Now)
	}
	return differs
}

func (a *app) showTool(mark string, t *sdk.Tool) {
	if t == nil {
		return
	}
	for _, l := range strings.Split(t.Description, "\n") {
		fmt.Fprintln(a.out, mark+printable(l))
	}
	if b, err := json.Marshal(t.InputSchema); err == nil {
		fmt.Fprintln(a.out, mark+printable(string(b)))
	}
}
