// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/internal/config"
	"github.com/caisson-run/caisson/internal/linux/scope"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/mcp"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/toolcall"
)

func (a *app) mcpCommand() *cobra.Command {
	var policyFile string
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Give an agent tools that run in sandboxes, over MCP",
		Long: `Serve tools over the Model Context Protocol to the client that starts this
command, on standard input and output: run_code and run_command in a fresh sandbox
or in a persistent one, files in it, sandboxes themselves, and what was changed in
the workspace that the policy names. A person is asked before that is applied.

Persistent sandboxes are this client's alone, and end when it leaves. What
they and each run may do is what the policy file says; without one they have no
network and none of your files. The same tools are at /mcp of caisson serve, for
who has a key.

caisson mcp gateway stands in an agent's configuration in the place of a
third-party MCP server, which then runs in a sandbox.`,
		Example: `  caisson mcp --policy agents.yaml
  claude mcp add caisson -- caisson mcp
  caisson mcp gateway --tool '*' --allow preset:npm -- npx -y @modelcontextprotocol/server-everything
  caisson mcp approve --policy servers.yaml files`,
		Args: a.unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(contextOf(cmd), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends it at once
			defer a.mustEnd(ctx)()
			return a.serveMCP(ctx, policyFile)
		},
	}
	policyVar(cmd.Flags(), &policyFile, "policy `FILE` that says what may be run, and how")
	cmd.AddCommand(a.mcpGatewayCommand(), a.mcpApproveCommand())
	a.inState(cmd)
	a.inState(cmd.Commands()...)
	return cmd
}

// gatewayFlags are the flags of the gateway's commands: those of run that say
// what a sandbox is like, and which tools may be called.
type gatewayFlags struct {
	runFlags
	name, prefix               string
	tools, deny                []string
	resources, prompts, client []string
	yes                        bool
}

func (a *app) mcpGatewayCommand() *cobra.Command {
	f := &gatewayFlags{}
	cmd := &cobra.Command{
		Use:   "gateway [--policy FILE] [SERVER...] | gateway [flags] --tool PATTERN -- COMMAND [ARG...]",
		Short: "Run MCP servers of others in sandboxes, for one client",
		Long: `Stand between an MCP client, which starts this command and speaks with it over
standard input and output, and MCP servers of others, each in a sandbox of its
own that lives as long as the client.

The servers are those of the section servers of a policy file, all or the named
ones, or one command after --, with flags as caisson run has them. A server has
no network and none of your files but what is named there. Of its tools callers
see those that are listed; '*' lists all. Arguments are checked by the tool's
schema, and by the policy's own; results, time and number of calls are bounded;
every call is recorded.

What a server says of its tools when it is first seen is kept. A tool that is
new or says something else later is hidden until caisson mcp approve shows it to
a person who approves it. A server that crashes is started again, later each
time.`,
		Example: `  caisson mcp gateway --policy servers.yaml
  caisson mcp gateway --policy servers.yaml files search
  caisson mcp gateway --tool '*' --mount ./server.js --mount ./notes:/notes:rw -- node server.js /notes
  caisson mcp gateway --tool 'read_*' --tool 'list_*' --image node:22 --allow preset:npm -- npx -y some-server`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(contextOf(cmd), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends it at once
			defer a.mustEnd(ctx)()
			defer runtime.KeepAlive(room())
			slack()
			g, end, err := a.gateway(ctx, cmd, f, args)
			if err != nil {
				return err
			}
			return errors.Join(g.Serve(ctx, a.in, a.out.file), end())
		},
		SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true,
	}
	f.add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("image", a.completeImages)
	a.completeLevels(cmd)
	completeWords(cmd, "git", "ro", "rw")
	completeWords(cmd, "client", "sampling", "elicitation", "roots", "logging")
	return cmd
}

func (f *gatewayFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.SortFlags = false
	policyVar(fs, &f.policy, "policy `FILE` with servers, or that bounds the command after --")
	fs.StringArrayVar(&f.tools, "tool", nil, "let tools of the command's be called: `PATTERN`, such as 'read_*', or '*'")
	fs.StringArrayVar(&f.deny, "deny-tool", nil, "hide tools, whatever --tool says: `PATTERN`")
	fs.StringArrayVar(&f.resources, "resource", nil, "let resources be read: `PATTERN` of URIs, such as 'file:///notes/*'")
	fs.StringArrayVar(&f.prompts, "prompt", nil, "let prompts be asked for: `PATTERN`")
	fs.StringArrayVar(&f.client, "client", nil, "let the server use of its client: `WHAT`, sampling, elicitation, roots or logging")
	fs.StringVar(&f.name, "name", "", "call the server `NAME` (the command's)")
	fs.StringVar(&f.prefix, "prefix", "", "put `TEXT` before the names of its tools")
	emptyMeans(fs, "prefix")
	fs.StringArrayVar(&f.mounts, "mount", nil, "show a file or directory: `SRC`[:TARGET][:ro|rw|cow|rw,shared] (ro), with \\: for a colon in a name")
	fs.StringVar(&f.workspace, "workspace", "", "work in a directory of yours: `DIR`[:cow|ro|rw|rw,shared] (cow)")
	fs.StringVar(&f.git, "git", "", "what code may do with repositories in what is mounted rw: `MODE` ro or rw (ro)")
	fs.StringVar(&f.workdir, "workdir", "", "work in the directory `PATH` inside, absolute")
	fs.StringArrayVar(&f.writable, "writable", nil, "make a path inside writable: `PATH`")
	fs.StringArrayVar(&f.toolchains, "toolchain", nil, "show a toolchain from elsewhere, with its bin in PATH: `DIR`")
	fs.StringVar(&f.image, "image", "", "run on a container `IMAGE`: node:22, ./image.tar, oci:DIR")
	fs.StringArrayVar(&f.allow, "allow", nil, "let connections out: `HOST`[:PORT], '*.HOST', or preset:npm, as for run")
	fs.StringArrayVar(&f.secrets, "secret", nil, "let the router put a secret into requests: `NAME`=env:VARIABLE@HOST")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "set a variable: `NAME`=VALUE, or NAME to pass yours on")
	fs.StringArrayVar(&f.envFiles, "env-file", nil, "set the variables of a `FILE` of NAME=VALUE lines")
	fs.StringVar(&f.isolation, "isolation", "", "`LEVEL` of isolation; caisson doctor lists them (gvisor)")
	f.limits.add(fs, persistent.LivingLimits())
	fs.BoolVar(&f.bestEffort, "best-effort", false, "run even if a limit cannot be enforced here")
}

// gateway makes the gateway of a command line.
func (a *app) gateway(ctx context.Context, cmd *cobra.Command, f *gatewayFlags, args []string) (_ *mcp.Gateway, end func() error, err error) {
	system, err := config.System(config.SystemPath)
	if err != nil {
		return nil, nil, err
	}
	var file *policy.File
	if f.policy != "" {
		if file, err = config.File(f.policy); err != nil {
			return nil, nil, err
		}
	}
	servers, err := a.upstreams(cmd, f, file, args)
	if err != nil {
		return nil, nil, err
	}
	_, _ = scope.Enter(ctx) // before the levels are made; see open
	dir, err := store.Open(a.place())
	if err != nil {
		return nil, nil, err
	}
	end = dir.Close
	defer func() {
		if err != nil {
			end()
		}
	}()
	if note := dir.Note(); note != "" {
		a.note("%s", note)
	}
	record, err := openRecord(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	// What the whole file says of tools, of risk and of approval holds for every
	// server's tools, too; each server's own policy is about its sandbox.
	judged, err := policy.New(policy.Options{System: system, File: file, Defaults: persistent.LivingLimits()})
	if err != nil {
		return nil, nil, err
	}
	rates := &counting{dir: dir.Path()}
	approvals := question.New(question.Options{Dir: dir.Path(), Journal: record, Complain: func(err error) { a.note("%v", err) }})
	end = func() error { return errors.Join(rates.close(), approvals.Close(), dir.Close()) }
	for i := range servers {
		s := &servers[i]
		p, err := policy.New(policy.Options{System: system, File: s.file, Defaults: persistent.LivingLimits()})
		if err != nil {
			return nil, nil, err
		}
		s.Policy, s.PolicySHA = f.policy, p.Digest()
		if fetches(s.Call.Argv) == s.Advice && s.Advice != "" {
			a.note("server %s: %s", s.Name, s.Advice) // clients give up before it does
		}
		if s.Session, err = session.New(session.Options{Drivers: a.drivers(), Policy: p, PolicyName: f.policy, Read: file.Reads(), Journal: record, State: session.DirState(dir)}); err != nil {
			return nil, nil, err
		}
	}
	o := mcp.GatewayOptions{Pins: &mcp.Pins{Dir: filepath.Join(dir.Path(), "mcp")}, Actor: actor(), Version: version,
		Notice: func(s string) { a.note("%s", s) }, Complaint: func(s string) { a.note("%s", s) }}
	judge, err := session.New(session.Options{Drivers: a.drivers(), Policy: judged, PolicyName: f.policy, Journal: record, State: session.DirState(dir), Rates: rates, Approvals: approvals})
	if err != nil {
		return nil, nil, err
	}
	o.Judge = toolcall.Of(judge)
	for _, s := range servers {
		o.Servers = append(o.Servers, s.Upstream)
	}
	g, err := mcp.NewGateway(o)
	return g, end, err
}

// upstreamOf is a server and the policy of its sandbox.
type upstreamOf struct {
	mcp.Upstream
	file *policy.File
}

// upstreams are the servers of a command line: the policy's, or a command.
func (a *app) upstreams(cmd *cobra.Command, f *gatewayFlags, file *policy.File, args []string) ([]upstreamOf, error) {
	if cmd.ArgsLenAtDash() == 0 && len(args) > 0 {
		u, err := a.commandUpstream(cmd, f, file, args)
		return []upstreamOf{u}, err
	}
	if file == nil || len(file.Servers) == 0 {
		return nil, usage(cmd, "there is no server to run", "name a policy file with servers, or a command after --: "+cmd.CommandPath()+" --tool '*' --mount ./server.js -- node server.js")
	}
	for _, name := range sandboxFlags {
		if cmd.Flags().Changed(name) {
			return nil, usage(cmd, "--"+name+" goes with a command after --", "write it into the server's entry in "+f.policy)
		}
	}
	for _, l := range limitTable() {
		if cmd.Flags().Changed(l.flag) {
			return nil, usage(cmd, "--"+l.flag+" goes with a command after --", "write it into the server's entry in "+f.policy)
		}
	}
	wanted := file.Servers
	if len(args) > 0 {
		wanted = nil
		for _, name := range args {
			s := file.Server(name)
			if s == nil {
				return nil, &sandbox.Error{Op: cmd.CommandPath(), Kind: sandbox.ErrNotFound, Problem: f.policy + " has no server " + sandbox.Quoted(name),
					Hint: "name one of its servers, or a command after --"}
			}
			wanted = append(wanted, s)
		}
	}
	var out []upstreamOf
	for _, s := range wanted {
		own := file.ServerFile(s)
		c := session.Call{Frontend: "mcp"}
		c.Actor, c.Operator, c.Lookup = actor(), true, os.LookupEnv
		for _, word := range s.Command {
			c.Argv = append(c.Argv, word.V)
		}
		u := mcp.Upstream{Name: s.Name.V, Server: s, Place: file.Place, Call: c, Image: own.Image.V}
		if len(own.Network.Allow) == 0 {
			u.Advice = fetches(c.Argv)
		}
		out = append(out, upstreamOf{u, own})
	}
	return out, nil
}

// sandboxFlags say what the sandbox of a command is like, and what of it may be
// used.
var sandboxFlags = []string{"tool", "deny-tool", "resource", "prompt", "client", "name", "prefix", "mount", "workspace", "git", "workdir", "writable", "toolchain", "image", "allow", "secret",
	"env", "env-file", "isolation", "best-effort", "output-kill"}

// commandUpstream is the server of a command after --.
func (a *app) commandUpstream(cmd *cobra.Command, f *gatewayFlags, file *policy.File, args []string) (none upstreamOf, _ error) {
	if len(f.tools)+len(f.resources)+len(f.prompts) == 0 {
		return none, usage(cmd, "none of the server's tools may be called", "list them: --tool read_file --tool 'list_*', or --tool '*' for all")
	}
	call, _, err := a.call(cmd, &f.runFlags, args)
	if err != nil {
		return none, err
	}
	call.Frontend = "mcp"
	name := f.name
	if name == "" {
		name = filepath.Base(args[0])
	}
	s, err := policy.ServerOf(name, f.prefix, policy.ServerWish{Tools: f.tools, Deny: f.deny, Resources: f.resources, Prompts: f.prompts, Client: f.client})
	if err != nil {
		return none, err
	}
	u := mcp.Upstream{Name: name, Server: s, Place: func(policy.Pos) string { return "--tool" }, Call: *call, Image: f.image}
	if len(call.Network) == 0 && file == nil {
		u.Advice = fetches(call.Argv)
	}
	if word := unseen(call); u.Advice == "" && word != "" && f.workspace == "" && f.image == "" && file == nil {
		u.Advice = fmt.Sprintf("%s is in this directory, and not in the sandbox: --mount %s shows it", sandbox.Quoted(word), sandbox.Quoted(word))
	}
	return upstreamOf{u, file}, nil
}
