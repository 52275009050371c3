// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/sandbox"
)

// help is show, where there is what help is asked for: of a word that is no command
// that of the one before it would say nothing, and end as if all were well.
func (a *app) help(show func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(cmd *cobra.Command, args []string) {
		if err := misnamed(cmd); err != nil {
			a.fail(cmd, err)
			a.code = exitCannot
			return
		}
		show(cmd, args)
	}
}

// misnamed is why what stands after a command is none of its subcommands; nil where it
// has none, or nothing stands there.
func misnamed(cmd *cobra.Command) error {
	if !cmd.HasSubCommands() || cmd.Args == nil {
		return nil
	}
	return cmd.Args(cmd, cmd.Flags().Args())
}

// helpCommand is caisson help.
func (a *app) helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help on a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if err := a.unknownCommand(cmd, rest); err != nil {
				return err
			}
			return cmd.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return subcommands(cmd, word), cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// subcommands are those of cmd that begin with word, with what they do.
func subcommands(cmd *cobra.Command, word string) (names []string) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), word) {
			names = append(names, sub.Name()+"\t"+sub.Short)
		}
	}
	return names
}

// unknownCommand refuses arguments of a command that only has subcommands.
func (a *app) unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help lists what there is"
	cmd.SuggestionsMinimumDistance = 2
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		hint = "did you mean " + cmd.CommandPath() + " " + s[0] + "?"
	}
	return &sandbox.Error{Op: cmd.CommandPath() + " " + printable(args[0]), Kind: sandbox.ErrInvalid, Problem: "there is no such command", Hint: hint}
}
