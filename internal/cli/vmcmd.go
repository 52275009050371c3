// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/image/kernel"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
)

func (a *app) vmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Get, list and remove the kernels of virtual machines",
		Long: `Get, list and remove the kernels that run --isolation microvm and vm boot. caisson
ships none: it takes this host's, or a file. The newest import is used.`,
		Example: `  caisson vm kernel import
  caisson vm kernel ls
  caisson run --isolation microvm --template data -- python3 plot.py`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	k := &cobra.Command{
		Use:   "kernel",
		Short: "Get, list and remove kernels",
		Example: `  caisson vm kernel import
  caisson vm kernel ls`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	k.AddCommand(a.kernelImport(), a.kernelList(), a.kernelRemove())
	a.inState(k.Commands()...)
	cmd.AddCommand(k)
	return cmd
}

// kernels are those that the levels boot. Only who imports one makes their directory.
func (a *app) kernels(makes bool) (*kernel.Store, error) {
	if makes {
		dir, err := store.Open(a.place())
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		return kernel.NewStore(filepath.Join(dir.Path(), kernel.Dir)), nil
	}
	return kernel.NewStore(filepath.Join(store.Place(a.place()), kernel.Dir)), nil
}

func (a *app) kernelImport() *cobra.Command {
	var o kernel.ImportOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "Keep a kernel for virtual machines",
		Long: `Keep a kernel for virtual machines: a bzImage (/boot/vmlinuz-*) or a vmlinux, and of
its modules those that a guest needs. Without FILE it is the newest in /boot whose
modules are here, a cloud kernel before others. Debian's linux-image-cloud-amd64 has
all that is needed and boots fastest.`,
		Example: `  caisson vm kernel import
  caisson vm kernel import /boot/vmlinuz-6.1.0-48-cloud-amd64
  caisson vm kernel import ./vmlinux`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return nil
			}
			return usage(cmd, "it takes one file", "for example caisson vm kernel import ./vmlinux")
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.File = args[0]
			}
			s, err := a.kernels(true)
			if err != nil {
				return err
			}
			k, err := s.Import(o)
			if err != nil {
				return err
			}
			if asJSON {
				a.printJSON(k)
				return nil
			}
			fmt.Fprintf(a.out, "%.12s  Linux %s, %d modules\n", k.Digest, printable(k.Version), len(k.Modules))
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringVar(&o.Modules, "modules", "", "the kernel's modules are in `DIR` (/lib/modules/VERSION when there is one)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) kernelList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the kernels that are here, the one in use first",
		Example: `  caisson vm kernel ls
  caisson vm kernel ls --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := a.kernels(false)
			if err != nil {
				return err
			}
			list, err := s.List()
			if err != nil {
				return &sandbox.Error{Op: "list kernels", Kind: sandbox.ErrUnavailable, Problem: "they cannot be read", Cause: err}
			}
			if asJSON {
				if list == nil {
					list = []*kernel.Kernel{}
				}
				a.printJSON(map[string]any{"kernels": list})
				return nil
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "DIGEST\tVERSION\tMODULES\tIMPORTED\tFROM")
			for _, k := range list {
				fmt.Fprintf(w, "%.12s\t%s\t%d\t%s\t%s\n", k.Digest, printable(k.Version), len(k.Modules), k.Imported.Local().Format("2006-01-02 15:04"), printable(k.From))
			}
			return w.Flush()
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) kernelRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm DIGEST",
		Short:   "Remove a kernel",
		Long:    "Remove a kernel. A machine that runs keeps what it has booted.",
		Example: "  caisson vm kernel rm bc0706e39e2a",
		Args:    one("a digest", "caisson vm kernel ls has them"),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := a.kernels(false)
			if err != nil {
				return err
			}
			return s.Remove(args[0])
		},
		SilenceErrors: true, SilenceUsage: true,
	}
}
