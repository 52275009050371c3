// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/sandbox"
)

// manCommand writes man pages from the same texts that --help shows. It is
// for packagers, and hidden.
func (a *app) manCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "man [flags]",
		Short:   "Write man pages",
		Hidden:  true,
		Example: "  caisson man --dir ./man1",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return manPage(a.out, cmd.Root())
			}
			return manPages(dir, cmd.Root())
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write a page per command into `DIR`")
	return cmd
}

func manPages(dir string, cmd *cobra.Command) error {
	f, err := os.Create(filepath.Join(dir, manName(cmd)+".1"))
	if err != nil {
		return &sandbox.Error{Op: "--dir " + sandbox.Quoted(dir), Kind: sandbox.ErrUnavailable, Problem: "the pages cannot be written", Hint: "name a directory that is there", Cause: err}
	}
	if err := manPage(f, cmd); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if sub.Hidden {
			continue
		}
		if err := manPages(dir, sub); err != nil {
			return err
		}
	}
	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is one page in the man macros.
func manPage(w io.Writer, cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" caisson \"User Commands\"\n", strings.ToUpper(roff(manName(cmd))))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n")
	parent := ""
	if cmd.HasParent() {
		parent = cmd.Parent().CommandPath() + " "
	}
	for _, use := range strings.Split(cmd.Use, " | ") {
		fmt.Fprintf(&b, "%s\n", roff(parent+use))
	}
	b.WriteString(".fi\n")
	if cmd.Long != "" {
		fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", strings.ReplaceAll(roff(cmd.Long), "\n\n", "\n.PP\n"))
	}
	manCommands(&b, cmd)
	manFlags(&b, cmd)
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(manName(cmd.Parent())))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func manCommands(b *strings.Builder, cmd *cobra.Command) {
	first := true
	for _, sub := range cmd.Commands() {
		if sub.Hidden {
			continue
		}
		if first {
			b.WriteString(".SH COMMANDS\n")
			first = false
		}
		fmt.Fprintf(b, ".TP\n.BR %s (1)\n%s\n", roff(manName(sub)), roff(sub.Short))
	}
}

func manFlags(b *strings.Builder, cmd *cobra.Command) {
	first := true
	cmd.InheritedFlags() // it adds those of the commands before to Flags
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if first {
			b.WriteString(".SH OPTIONS\n")
			first = false
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(name), roff(usage))
	})
}

// roff escapes what the macros would take for their own.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
