// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/volume"
)

func (a *app) volumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volume",
		Short: "List and remove what sandboxes keep for a workspace",
		Long: `List and remove volumes: directories that sandboxes have in one workspace, and that
are kept between runs, such as an agent's home. A policy names them (files.volumes).
They lie in the state directory, and are none of the host's. What is in them is code's:
look into them in a sandbox, not here.`,
		Example: `  caisson volume ls
  caisson volume rm 3f9a`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.AddCommand(a.volumeList(), a.volumeRemove())
	a.inState(cmd.Commands()...)
	return cmd
}

// volumes opens those of the state directory; nil where there is no such directory.
func (a *app) volumes() (*volume.Store, func() error, error) {
	dir, err := store.Open(a.look())
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil, func() error { return nil }, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return volume.In(dir.Path()), dir.Close, nil
}

func (a *app) volumeList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the volumes, by workspace",
		Example: `  caisson volume ls
  caisson volume ls --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, done, err := a.volumes()
			if err != nil {
				return err
			}
			defer done()
			list := []volume.Volume{}
			if s != nil {
				more, err := s.List()
				if err != nil {
					return err
				}
				list = append(list, more...)
			}
			if asJSON {
				a.printJSON(map[string]any{"volumes": list})
				return nil
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tNAME\tSIZE\tUSED\tWORKSPACE")
			for _, v := range list {
				at := printable(v.Workspace)
				if v.Gone {
					at += " (gone)"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", v.ID, v.Name, v.Size(), v.Used.Local().Format("2006-01-02 15:04"), at)
			}
			return w.Flush()
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) volumeRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm ID...",
		Short:   "Remove volumes with all that is in them",
		Example: `  caisson volume rm 3f9a`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(cmd, "it takes volumes", "caisson volume ls lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.open(contextOf(cmd), "")
			if err != nil {
				return err
			}
			defer o.close()
			for _, id := range args {
				v, err := o.RemoveVolume(contextOf(cmd), byOperator(), id)
				if err != nil {
					return err
				}
				fmt.Fprintln(a.out, v.ID)
			}
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
	}
}
