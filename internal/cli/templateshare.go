// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) templateShare() *cobra.Command {
	var off, asJSON bool
	cmd := &cobra.Command{
		Use:   "share NAME[:TAG]",
		Short: "Let every key of the daemon make sandboxes of a template",
		Long: `Let every key of the daemon make sandboxes of a template, whatever its policy says of
images. Without it a key has those of the operator's templates that its policy names.
What a key builds is its own alone, and cannot be shared. A template that is built anew
under the name is shared, too.`,
		Example: `  caisson template share data
  caisson template share data --off`,
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
			if err := s.Share(r, !off); err != nil {
				return err
			}
			if asJSON {
				a.printJSON(map[string]any{"name": r.Name + ":" + r.Tag, "shared": !off})
				return nil
			}
			fmt.Fprintf(a.out, "%s is for %s\n", r.Familiar(), forWhom(!off))
			return nil
		},
		ValidArgsFunction: a.completeTemplates,
		SilenceErrors:     true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&off, "off", false, "share it no more; sandboxes of it go on")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// forWhom says who may have a template of the operator's.
func forWhom(shared bool) string {
	if shared {
		return "all keys"
	}
	return "keys whose policy names it"
}
