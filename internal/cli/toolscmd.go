// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/internal/config"
	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/toolcall"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/tool/params"
)

func (a *app) toolsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List, export and call the tools that agents are offered",
		Long: `List, export and call the tools that agents are offered.

Those that are built in may be called where no policy has a section tools; where
one has it, those that it lists, and no other. See docs/tools.md.`,
		Example: `  caisson tools ls
  caisson tools export --format anthropic
  caisson tools call run_code --params '{"language": "python", "code": "print(6*7)"}'`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.AddCommand(a.toolsList(), a.toolsExport(), a.toolsCall())
	return cmd
}

// offered are the tools under a policy file.
func offered(file string) ([]*tool.Tool, error) {
	p, err := config.Policy(file)
	if err != nil {
		return nil, err
	}
	return p.Tools().List(), nil
}

func (a *app) toolsList() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the tools that may be called",
		Example: `  caisson tools ls
  caisson tools ls --policy agents.yaml --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			tools, err := offered(file)
			if err != nil {
				return err
			}
			if asJSON {
				text, err := tool.Export(tools, "mcp")
				if err == nil {
					_, err = a.out.Write(text)
				}
				return err
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tKIND\tDESCRIPTION")
			for _, t := range tools {
				kind := "built in"
				if _, ok := tool.Builtin(t.Name); !ok {
					kind = "declared"
					switch {
					case t.Command != nil:
						kind = "command"
					case t.HTTP != nil:
						kind = "request"
					}
				}
				first, _, _ := strings.Cut(t.Description, ". ")
				fmt.Fprintf(w, "%s\t%s\t%s\n", t.Name, kind, dash(strings.TrimSuffix(first, ".")))
			}
			return w.Flush()
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	policyVar(cmd.Flags(), &file, "those that a policy `FILE` lists")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as tools export --format mcp does")
	return cmd
}

func (a *app) toolsExport() *cobra.Command {
	var file, format string
	cmd := &cobra.Command{
		Use:   "export --format FORMAT",
		Short: "Write the tools as a model's API takes them",
		Long: `Write the definitions of the tools that may be called as a model's API takes
them: openai (the Responses API), openai-chat (Chat Completions), anthropic (the
Messages API), or mcp (the answer to tools/list).`,
		Example: `  caisson tools export --format openai > tools.json
  caisson tools export --format anthropic --policy agents.yaml`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			tools, err := offered(file)
			if err != nil {
				return err
			}
			text, err := tool.Export(tools, format)
			if err != nil {
				return err
			}
			_, err = a.out.Write(text)
			return err
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringVar(&format, "format", "mcp", "write them in `FORMAT`: "+strings.Join(tool.Formats(), ", "))
	completeWords(cmd, "format", tool.Formats()...)
	policyVar(cmd.Flags(), &file, "those that a policy `FILE` lists")
	return cmd
}

func (a *app) toolsCall() *cobra.Command {
	var file, arguments string
	var d daemon
	cmd := &cobra.Command{
		Use:   "call NAME [--params JSON]",
		Short: "Call a tool as an agent does, in a sandbox of its own",
		Long: `Call a tool as an agent does: its arguments are checked, the policy decides, and
what it runs is run in a fresh sandbox and recorded. Tools about persistent
sandboxes need caisson serve or caisson mcp: with --url the caisson serve there
calls the tool, under the policy of the key.

--params - reads the arguments from standard input, --params @FILE from a file.

The exit code is the program's own, as with caisson run; 126 when the policy
refused the call, 125 when its arguments do not fit.`,
		Example: `  caisson tools call run_command --params '{"command": "uname -a"}'
  caisson tools call resize --policy agents.yaml --params '{"in": "a.png", "size": 64}' --json
  caisson tools call create_sandbox --url http://127.0.0.1:7420`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(cmd, "it takes the name of one tool", "caisson tools ls lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, read, err := a.toolArguments(arguments)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(contextOf(cmd), os.Interrupt, syscall.SIGTERM)
			defer stop()
			switch {
			case d.url != "" && file != "":
				return usage(cmd, "--policy and --url are two ways to say which policy bounds the call", "with --url it is that of the key")
			case d.url != "" && a.state != "":
				return usage(cmd, "--state and --url are two places where the call may be made", "leave one of them out")
			case d.url != "":
				return a.callToolAt(ctx, &d, args[0], text)
			case d.key != "":
				return usage(cmd, "--api-key is for a caisson serve", "say which with --url")
			}
			return a.callTool(ctx, file, &toolcall.Call{Name: args[0], Args: text, Read: read, Frontend: "cli", Actor: actor(), Operator: true}, d.json)
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringVar(&arguments, "params", "{}", "the arguments: `JSON`, @FILE or -")
	policyVar(cmd.Flags(), &file, "policy `FILE` that bounds the call")
	cmd.Flags().StringVar(&d.url, "url", "", "have the caisson serve at `URL` call it")
	cmd.Flags().StringVar(&d.key, "api-key", "", "with --url: ask with `KEY` (or $CAISSON_API_KEY, which other users cannot see)")
	cmd.Flags().BoolVar(&d.json, "json", false, "print the answer, as an agent gets it, or the error, as one JSON object")
	a.inState(cmd)
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		tools, err := offered(file)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, t := range tools {
			names = append(names, t.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// toolArguments reads what --params says. read is the file that it names.
func (a *app) toolArguments(s string) (text []byte, read []sandbox.HostFile, _ error) {
	name, isFile := strings.CutPrefix(s, "@")
	if isFile {
		text, file, err := files.ReadOpen(name, params.MaxText+1)
		if err == nil && file != nil {
			var path string
			path, err = files.Absolute(name)
			read = append(read, sandbox.HostFile{Path: path, File: file})
		}
		if err != nil {
			return nil, nil, &sandbox.Error{Op: "--params @" + printable(name), Kind: sandbox.ErrNotFound, Problem: "the file cannot be read", Cause: err,
				Hint: "name a file with the arguments as JSON"}
		}
		return text, read, nil
	}
	if s != "-" {
		return []byte(s), nil, nil
	}
	text, err := io.ReadAll(io.LimitReader(a.in, params.MaxText+1))
	if err != nil {
		return nil, nil, &sandbox.Error{Op: "--params", Kind: sandbox.ErrInvalid, Problem: "they cannot be read", Cause: err}
	}
	if info, err := a.in.Stat(); err == nil && info.Mode().IsRegular() {
		read = append(read, sandbox.HostFile{File: a.in})
	}
	return text, read, nil
}

// callTool calls a tool and shows what came of it.
func (a *app) callTool(ctx context.Context, file string, call *toolcall.Call, asJSON bool) error {
	opened, err := a.open(ctx, file)
	if err != nil {
		return err
	}
	defer opened.close()
	if !asJSON {
		stdout, finish := a.output(a.out.file, &runFlags{})
		defer finish()
		stderr, finishErr := a.output(a.err, &runFlags{})
		defer finishErr()
		call.Stdout, call.Stderr = stdout, stderr
	}
	answer, err := toolcall.Of(opened.Session).CallTool(ctx, call)
	if err != nil {
		return err
	}
	if answer.Result != nil {
		a.code = exitCode(answer.Result)
	}
	switch {
	case asJSON:
		a.printJSON(answer.Output)
	case answer.Result != nil:
		a.show(&runFlags{}, answer.Result, nil)
	default:
		text, _ := answer.Shown()
		_, err := fmt.Fprintln(call.Stdout, text) // as plain as what programs write
		a.out.note(err)
	}
	if answer.Result == nil && answer.Failed {
		a.code = exitFault
	}
	return nil
}
