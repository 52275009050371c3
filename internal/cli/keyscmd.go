// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/registry"
)

func (a *app) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make, list and revoke the keys of caisson serve",
		Long: `Make, list and revoke the keys of those who may ask caisson serve for sandboxes.

Each key sees its own sandboxes alone. What they may have is said by the policy
that the key is bound to; see caisson serve --policy. A key is shown when it is
made, and only its hash is kept.`,
		Example: `  caisson keys create --name ci --policy ci
  caisson keys ls
  caisson keys revoke ci`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.AddCommand(a.keysCreate(), a.keysList(), a.keysRevoke())
	a.inState(cmd.Commands()...)
	return cmd
}

// withKeys opens the keys of a state directory, for one command. Only one that makes a
// key makes what it is kept in.
func (a *app) withKeys(ctx context.Context, makes bool, do func(*persistent.Keys) error) error {
	dir, err := store.Open(store.Options{Dir: a.state, ReadOnly: !makes})
	if err != nil {
		return err
	}
	defer dir.Close()
	open := registry.Look
	if makes {
		open = registry.Open
	}
	db, err := open(ctx, dir.Path())
	if err != nil {
		return err
	}
	defer db.Close()
	keys, err := persistent.OpenKeys(db, "")
	if err != nil {
		return err
	}
	return do(keys)
}

func (a *app) keysCreate() *cobra.Command {
	var name, policy, profile string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a key and show it, once",
		Example: `  caisson keys create
  caisson keys create --name ci --policy ci --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withKeys(contextOf(cmd), true, func(keys *persistent.Keys) error {
				k, token, err := keys.Create(contextOf(cmd), name, policy, profile)
				if err != nil {
					return err
				}
				a.noteBound("policy", k.Policy, "=FILE")
				a.noteBound("profile", k.Profile, ":FIELD=VALUE")
				if asJSON {
					a.printJSON(map[string]any{"id": k.ID, "name": k.Name, "policy": k.Policy, "profile": k.Profile, "key": token})
					return nil
				}
				fmt.Fprintln(a.out, token)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "call it `NAME`, in lists and records; no two valid keys have one name")
	f.StringVar(&policy, "policy", "", "bind it to the policy that caisson serve knows as `NAME`")
	f.StringVar(&profile, "profile", "", "bind it to the limit profile `NAME`")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// noteBound says what a key that was just made is good for: which policies and profiles there
// are is said when caisson serve starts, and not known here.
func (a *app) noteBound(what, name, value string) {
	if name != "" {
		a.note("caisson serve must be started with --%s %s%s: else it refuses the key", what, name, value)
	}
}

func (a *app) keysList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the keys",
		Example: `  caisson keys ls
  caisson keys ls --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withKeys(contextOf(cmd), false, func(keys *persistent.Keys) error {
				all, err := keys.List(contextOf(cmd))
				if err != nil {
					return err
				}
				if asJSON {
					if all == nil {
						all = []*persistent.Key{}
					}
					a.printJSON(all)
					return nil
				}
				w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "ID\tNAME\tPOLICY\tPROFILE\tMADE\tREVOKED")
				day := "2006-01-02 15:04"
				for _, k := range all {
					revoked := "-"
					if !k.Revoked.IsZero() {
						revoked = k.Revoked.Local().Format(day)
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, dash(k.Name), dash(k.Policy), dash(k.Profile), k.Created.Local().Format(day), revoked)
				}
				return w.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) keysRevoke() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke ID|NAME",
		Short:   "Make a key invalid at once; its sandboxes live until their time is over",
		Example: `  caisson keys revoke ci`,
		Args:    one("the ID or name of a key", "caisson keys ls lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withKeys(contextOf(cmd), false, func(keys *persistent.Keys) error {
				k, err := keys.Revoke(contextOf(cmd), args[0])
				if err == nil {
					fmt.Fprintf(a.out, "revoked %s\n", k.ID)
				}
				return err
			})
		},
	}
	return cmd
}

// dash is a word of a table, which has no empty ones.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}
