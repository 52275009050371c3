// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

func (a *app) templateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "template",
		Short: "Build, list and remove templates: roots with what programs need",
		Long: `Build, list and remove templates: roots that have what programs need, offline.

A template is built once, from a template.yaml or a Dockerfile, by steps that run in
sandboxes on gVisor, as the sandbox's own root, with the network that the file names. A
sandbox of it has that tree as its root, and no network but its own. Steps whose result
is known are not run again.`,
		Example: `  caisson template build data -f template.yaml
  caisson template build app -f Dockerfile .
  caisson run --template data -- python3 plot.py
  caisson template ls
  caisson template share data
  caisson template rm data`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.AddCommand(a.templateBuild(), a.templateList(), a.templateShow(), a.templateShare(), a.templateRemove(), a.templatePrune())
	a.inState(cmd.Commands()...)
	return cmd
}

// templateName reads NAME[:TAG].
func templateName(s string) (reference.Ref, error) {
	return reference.Parse("template:" + strings.TrimPrefix(s, "template:"))
}

func (a *app) templateList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the templates that are here",
		Example: `  caisson template ls
  caisson template ls --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, done, err := a.images(false)
			if err != nil {
				return err
			}
			defer done()
			list, err := s.Templates("")
			if err != nil {
				return err
			}
			if asJSON {
				if list == nil {
					list = []image.Template{}
				}
				a.printJSON(map[string]any{"templates": list})
				return nil
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tTAG\tSIZE\tFILES\tBUILT\tSHARED\tDIGEST")
			for _, t := range list {
				shared := "no"
				if t.Shared {
					shared = "yes"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%.19s\n", t.Name, t.Tag, mib(t.Image.Size), t.Image.Files, t.Named.Local().Format("2006-01-02 15:04"), shared, t.Image.Digest)
			}
			return w.Flush()
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) templateShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME[:TAG]",
		Short: "Show what a template begins with",
		Example: `  caisson template show data
  caisson template show data --json`,
		Args: one("a template", "caisson template ls lists what is here"),
		RunE: func(_ *cobra.Command, args []string) error {
			t, err := a.findTemplate(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				a.printJSON(t)
				return nil
			}
			c := t.Image.Config
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			for _, line := range [][2]string{
				{"name", t.Name + ":" + t.Tag}, {"digest", t.Image.Digest}, {"size", fmt.Sprintf("%s in %d files", mib(t.Image.Size), t.Image.Files)},
				{"user", t.Image.User.Name}, {"workdir", dash(c.WorkingDir)}, {"env", dash(strings.Join(c.Env, " "))},
				{"for", forWhom(t.Shared)}, {"command", dash(strings.Join(append(c.Entrypoint, c.Cmd...), " "))}, {"start", dash(c.Start)}, {"ready", dash(c.Ready)}, {"warmup", dash(c.Warmup)},
			} {
				fmt.Fprintf(w, "%s\t%s\n", line[0], printable(line[1]))
			}
			return w.Flush()
		},
		ValidArgsFunction: a.completeTemplates,
		SilenceErrors:     true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// findTemplate finds one of the operator's.
func (a *app) findTemplate(name string) (*image.Template, error) {
	r, err := templateName(name)
	if err != nil {
		return nil, err
	}
	s, done, err := a.images(false)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.FindTemplate(r, "")
}

func (a *app) templateRemove() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rm NAME[:TAG]",
		Short: "Remove a template",
		Long: `Remove a template's name, and its files where it has no other. Sandboxes that run on
it go on.`,
		Example: `  caisson template rm data
  caisson template rm data:old`,
		Args: one("a template", "caisson template ls lists what is here"),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := templateName(args[0])
			if err != nil {
				return err
			}
			s, done, err := a.images(false)
			if err != nil {
				return err
			}
			defer done()
			if err := s.Unname(r, ""); err != nil {
				return err
			}
			if asJSON {
				a.printJSON(map[string]any{"removed": []string{r.Name + ":" + r.Tag}})
				return nil
			}
			fmt.Fprintf(a.out, "removed %s\n", r.Familiar())
			return nil
		},
		ValidArgsFunction: a.completeTemplates,
		SilenceErrors:     true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) templatePrune() *cobra.Command {
	keep := ""
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove what builds keep: the results of their steps",
		Long: `Remove what builds keep so that the next one is faster: what each step has changed, and
stages that have no name. Templates stay. Without it the last 200 results stay, 20 GiB
together.`,
		Example: `  caisson template prune
  caisson template prune --keep 5GiB`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			size, err := keepSize(keep)
			if err != nil {
				return err
			}
			s, done, err := a.images(false)
			if err != nil {
				return err
			}
			defer done()
			n, err := s.PruneSteps(size)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "removed the results of %d steps and stages\n", n)
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringVar(&keep, "keep", "", "let the newest results stay that take `SIZE` together: 5GiB")
	return cmd
}

// keepSize reads --keep; without it nothing stays.
func keepSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := policy.ParseSize(text)
	if err == nil && n <= 0 {
		err = errors.New("it is nothing")
	}
	if err != nil {
		return 0, &sandbox.Error{Op: "--keep " + sandbox.Quoted(text), Kind: sandbox.ErrInvalid, Problem: err.Error(), Hint: cmp.Or(sandbox.Hint(err), "write a size, 5GiB, or leave it out")}
	}
	return n, nil
}

// completeTemplates offers the names of the templates that are here.
func (a *app) completeTemplates(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	s, done, err := a.images(false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer done()
	list, _ := s.Templates("")
	var names []string
	for _, t := range list {
		name := t.Name
		if t.Tag != reference.DefaultTag {
			name += ":" + t.Tag
		}
		if strings.HasPrefix(name, typed) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
