// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/sandbox"
)

// completeWords offers the words that a flag takes.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // a flag that is not there
	}
}

// plainUsages takes the marks off what flags say of themselves, which help turns into the
// names of their values; cobra shows it to shells as it is.
func plainUsages(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, sub := range cmd.Commands() {
		plainUsages(sub)
	}
}

// noFiles has commands that take no argument offer none: a shell would offer the files
// that lie here, or the sandboxes that there are.
func noFiles(cmd *cobra.Command) {
	if cmd.Args != nil && !cmd.HasSubCommands() && cmd.Args(cmd, []string{"x"}) != nil && cmd.Args(cmd, nil) == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		noFiles(sub)
	}
}

// completeLevels offers the levels that this build has.
func (a *app) completeLevels(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("isolation", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return slices.Sorted(maps.Keys(a.drivers())), cobra.ShellCompDirectiveNoFileComp
	})
}

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh, fish or powershell",
		Example: `  caisson completion bash > /etc/bash_completion.d/caisson
  source <(caisson completion zsh)`,
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(cmd, "it takes the name of one shell", "known are "+strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.out)
			}
			return &sandbox.Error{Op: cmd.CommandPath() + " " + sandbox.Quoted(args[0]), Kind: sandbox.ErrInvalid, Problem: "there is no completion for this shell",
				Hint: "known are " + strings.Join(shells, ", ")}
		},
		SilenceErrors: true, SilenceUsage: true,
	}
}
