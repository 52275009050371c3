// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/changes"
)

func (a *app) changesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "changes",
		Short: "Look at what code changed in a workspace, and apply it",
		Long: `Look at what code changed in a copy-on-write workspace, and apply it to the host.

run --workspace DIR keeps what was changed as a change set, for 7 days. Nothing of it
is on the host before it is applied. What the host runs later by itself (hooks, task
files, what can be run now, links that lead out) is held back: it is applied only when
it is named with --held. Nothing below .git is ever applied.

A file that was changed on the host since the run began is a conflict. With one
nothing is applied, but for --skip-conflicts.`,
		Example: `  caisson run --workspace . -- make fix
  caisson changes ls
  caisson changes show 7f3a
  caisson changes apply 7f3a src
  caisson changes apply 7f3a --held Makefile
  caisson changes branch 7f3a agent/fix
  caisson changes drop 7f3a`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.AddCommand(a.changesList(), a.changesShow(), a.changesApply(), a.changesBranch(), a.changesDrop())
	a.inState(cmd.Commands()...)
	return cmd
}

// aSet takes the ID of a change set, and paths behind it: no more than maximum arguments in
// all, where it is not 0.
func aSet(maximum int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usage(cmd, "it takes a change set", "caisson changes ls lists them")
		case maximum > 0 && len(args) > maximum:
			return usage(cmd, "it takes one path", "leave the others out, or name the directory that they lie in")
		}
		return nil
	}
}

// changeSets opens the pipeline and its change sets.
func (a *app) changeSets(cmd *cobra.Command) (*opened, *changes.Store, error) {
	o, err := a.open(contextOf(cmd), "")
	if err != nil {
		return nil, nil, err
	}
	store, err := o.ChangeSets()
	if err != nil {
		o.close()
		return nil, nil, err
	}
	return o, store, nil
}

// byOperator is a call of the operator, who sits here.
func byOperator() *session.Call {
	c := &session.Call{Frontend: "cli"}
	c.Actor, c.Operator = actor(), true
	return c
}

func (a *app) changesList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the change sets, the newest first",
		Example: `  caisson changes ls
  caisson changes ls --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, store, err := a.changeSets(cmd)
			if err != nil {
				return err
			}
			defer o.close()
			list, err := store.List("")
			if err != nil {
				return err
			}
			if asJSON {
				if list == nil {
					list = []changes.Summary{}
				}
				a.printJSON(map[string]any{"changes": list})
				return nil
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tMADE\tWORKSPACE\tCHANGES")
			for _, s := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.ID, s.Created.Local().Format("2006-01-02 15:04"), changes.Shown(s.Name), s.Line())
			}
			return w.Flush()
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) changesShow() *cobra.Command {
	var stat, asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID [PATH]",
		Short: "Show a change set as a patch, or what is at a path",
		Long: `Show a change set as a patch, beside the host's files as they are now.

What is not seen on a terminal, such as a character that turns text round, is written
as its number. The digest in the last line is that of all that is in the set:
apply --digest takes it.`,
		Example: `  caisson changes show 7f3a --stat
  caisson changes show 7f3a src/main.go`,
		Args: aSet(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, store, err := a.changeSets(cmd)
			if err != nil {
				return err
			}
			defer o.close()
			set, err := store.Get("", args[0])
			if err != nil {
				return err
			}
			at := ""
			if len(args) > 1 {
				at = args[1]
			}
			switch {
			case asJSON:
				a.printJSON(set)
				return nil
			case stat:
				err = changes.WriteStat(a.out, set)
			default:
				err = store.WritePatch(a.out, set, at)
			}
			if err == nil {
				fmt.Fprintf(a.out, "digest %s\n", set.Digest)
			}
			return err
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&stat, "stat", false, "show one line for each path")
	cmd.Flags().Bool("patch", true, "show the lines that were changed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) changesApply() *cobra.Command {
	var o changes.ApplyOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "apply ID [PATH...]",
		Short: "Apply a change set to its workspace, or the paths that are named",
		Long: `Apply a change set to the workspace on the host that it was made of.

A PATH is a file, a directory with all that is in it, or a pattern with *, ? and **.
Without one, all is applied that is not held back. Each file is the old one or the new
one at any time; an apply that was killed is gone on with by the next one. Every file
that is applied is code: look at it first.`,
		Example: `  caisson changes apply 7f3a
  caisson changes apply 7f3a src 'docs/**/*.md'
  caisson changes apply 7f3a --held Makefile`,
		Args: aSet(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, store, err := a.changeSets(cmd)
			if err != nil {
				return err
			}
			defer s.close()
			set, err := store.Get("", args[0])
			if err != nil {
				return err
			}
			if o.Digest == "" {
				o.Digest = set.Digest // a set does not change once it is made
			}
			o.Paths = args[1:]
			applied, err := s.ApplyChanges(contextOf(cmd), byOperator(), set.ID, o)
			if applied != nil {
				a.showApplied(applied, asJSON)
			}
			return err
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringArrayVar(&o.Held, "held", nil, "apply a `PATH` although it is held back")
	cmd.Flags().StringVar(&o.Digest, "digest", "", "refuse a set that has not the `DIGEST` that show printed")
	cmd.Flags().BoolVar(&o.SkipConflicts, "skip-conflicts", false, "apply what is in no conflict")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// showApplied says what an apply did.
func (a *app) showApplied(r *changes.Applied, asJSON bool) {
	if asJSON {
		a.printJSON(r)
		return
	}
	if r.Resumed {
		a.note("an earlier apply had ended half way; it was gone on with")
	}
	for _, c := range r.Conflicts {
		a.note("conflict: %s: %s", changes.Shown(c.Path), c.Why)
	}
	for _, l := range r.Left {
		a.note("not applied: %s: %s", changes.Shown(l.Path), strings.TrimPrefix(l.Why, path.Base(l.Path)+": "))
	}
	for _, p := range r.Paths {
		fmt.Fprintln(a.out, changes.Shown(p))
	}
	if len(r.Paths) == 0 && len(r.Already) > 0 && len(r.Conflicts)+len(r.Left) == 0 {
		a.note("the host has all of it already")
	}
}

func (a *app) changesBranch() *cobra.Command {
	var o session.BranchOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "branch ID NAME",
		Short: "Make a branch of what was committed inside, or of the set",
		Long: `Make a branch in the repository of the workspace that a change set was made of.

Commits that were made inside come out as the new branch NAME. Where nothing was
committed, one commit of the set is made on the repository's HEAD, without what is held
back and what .gitignore files ignore. Nothing is checked out, and no branch that is
there is changed. A path that is held back refuses all of it, whatever commit changes
it, unless it is named with --held. What is committed is code: look at it before you
check it out.`,
		Example: `  caisson changes branch 7f3a agent/fix
  caisson changes branch 7f3a agent/fix --held Makefile`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage(cmd, "it takes a change set and the name of a branch", "caisson changes ls lists the sets")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s, store, err := a.changeSets(cmd)
			if err != nil {
				return err
			}
			defer s.close()
			set, err := store.Get("", args[0])
			if err != nil {
				return err
			}
			if o.Digest == "" {
				o.Digest = set.Digest // a set does not change once it is made
			}
			o.Branch = args[1]
			made, err := s.BranchChanges(contextOf(cmd), byOperator(), set.ID, o)
			if err != nil {
				return err
			}
			if asJSON {
				a.printJSON(made)
				return nil
			}
			for _, l := range made.Left {
				a.note("not in it: %s: %s", changes.Shown(l.Path), l.Why)
			}
			fmt.Fprintln(a.out, made.Tip)
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringArrayVar(&o.Held, "held", nil, "take over a `PATH` although it is held back")
	cmd.Flags().StringVar(&o.Digest, "digest", "", "refuse a set that has not the `DIGEST` that show printed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) changesDrop() *cobra.Command {
	return &cobra.Command{
		Use:     "drop ID",
		Short:   "Remove a change set",
		Example: `  caisson changes drop 7f3a`,
		Args:    one("a change set", "caisson changes ls lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, _, err := a.changeSets(cmd)
			if err != nil {
				return err
			}
			defer o.close()
			return o.DropChanges(contextOf(cmd), byOperator(), args[0])
		},
		SilenceErrors: true, SilenceUsage: true,
	}
}

// showChanges says what was kept of what a run changed in its workspace.
func (a *app) showChanges(c *sandbox.Changes) {
	if c == nil {
		return
	}
	if c.ID != "" {
		text := fmt.Sprintf("%d files changed", c.Files)
		switch c.Files {
		case 0:
			text = "directories changed"
		case 1:
			text = "1 file changed"
		}
		if c.Held > 0 {
			text += fmt.Sprintf(", %d held back", c.Held)
		}
		switch n := len(c.Applied); n { // directories are paths, too
		case 0:
		case 1:
			text += ", 1 path applied"
		default:
			text += fmt.Sprintf(", %d paths applied", n)
		}
		a.note("%s: caisson changes show %s", text, c.ID)
	}
	if c.Problem != "" {
		what := "changes in the workspace were not kept"
		if c.ID != "" {
			what = "not all was applied"
		}
		a.say("%s: %s", what, c.Problem)
		if c.Hint != "" {
			a.detail("hint", c.Hint)
		}
	}
}
