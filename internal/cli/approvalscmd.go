// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

// approverEnv is the variable that holds an approver's credential.
const approverEnv = "CAISSON_APPROVER"

// approvalFlags are what the commands of approvals have in common.
type approvalFlags struct {
	credential, note, url  string
	json, all, wait, quiet bool
	typed                  string // the credential, once it was asked for
}

func (a *app) approvalsCommand() *cobra.Command {
	f := &approvalFlags{}
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "See what waits for a person's yes, and answer",
		Long: `Answer for calls that a policy asks about.

Who approves is not who asks: it takes an approver's credential, which is made by
enroll, shown once and kept as a hash. Keys of caisson serve are none. Give it in
the variable ` + approverEnv + `, in a file (--credential), or type it when asked.

A yes is for what was shown, once, and for a time. approve shows it and wants the
word yes at the terminal; elsewhere it wants the digest that show printed.

With --url they are those of a caisson serve, here or elsewhere, which wants the
credential for everything. Such an answer comes by the channel web. Approvers
themselves are made and revoked where the state is.`,
		Example: `  caisson approvals enroll ada
  caisson approvals ls
  caisson approvals show apv_2xk7
  caisson approvals approve apv_2xk7
  caisson approvals deny apv_2xk7 --note 'not on a Friday'
  caisson approvals ls --url https://api.sandboxes.example.com`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.PersistentFlags().StringVar(&f.url, "url", "", "ask the caisson serve at `URL`, not the state directory")
	cmd.AddCommand(a.approvalsList(f), a.approvalsShow(f), a.approvalsApprove(f), a.approvalsDeny(f), a.approvalsEnroll(f), a.approvalsApprovers(f), a.approvalsRevoke(f))
	a.inState(cmd.Commands()...)
	return cmd
}

// purpose is what a command opens the approvals for.
type purpose int

const (
	toLook   purpose = iota // at what is there, or to revoke an approver
	toAnswer                // which is recorded
	toEnroll                // which makes the state directory
)

// withApprovals opens what a command needs. One that waits makes what the first question
// will be in.
func (a *app) withApprovals(ctx context.Context, f *approvalFlags, p purpose, do func(*question.Approvals, *approval.Store) error) error {
	if f.url != "" {
		return &sandbox.Error{Op: "--url", Kind: sandbox.ErrUnsupported, Problem: "approvers are not made, listed or revoked over HTTP", Hint: "do it where the state directory is"}
	}
	dir, err := store.Open(store.Options{Dir: a.state, ReadOnly: p != toEnroll})
	if err != nil {
		return err
	}
	defer dir.Close()
	o := question.Options{Dir: dir.Path(), Look: p != toEnroll && !f.wait}
	if p == toAnswer {
		if err := a.knownApprover(ctx, f, dir.Path()); err != nil {
			return err
		}
		if o.Journal, err = openRecord(ctx, dir); err != nil {
			return err
		}
	}
	approvals := question.New(o)
	defer approvals.Close()
	s, err := approvals.Store(ctx)
	if err != nil {
		return err
	}
	return do(approvals, s)
}

// knownApprover refuses who may not answer before a record is opened, which makes one
// where there is none.
func (a *app) knownApprover(ctx context.Context, f *approvalFlags, dir string) error {
	look := question.New(question.Options{Dir: dir, Look: true})
	defer look.Close()
	s, err := look.Store(ctx)
	if err != nil {
		return err
	}
	_, err = a.approver(ctx, f, s)
	return err
}

// approver finds out who answers.
func (a *app) approver(ctx context.Context, f *approvalFlags, s *approval.Store) (approval.Who, error) {
	text, err := a.credential(f)
	if err != nil {
		return approval.Who{}, err
	}
	return s.Authenticate(ctx, text, approval.CLI)
}

const maxCredential = 4 << 10 // bytes, of which one has a hundred

// credential is what who answers shows for it.
func (a *app) credential(f *approvalFlags) (string, error) {
	text := os.Getenv(approverEnv)
	switch {
	case f.credential != "":
		b, err := files.Read(f.credential, maxCredential)
		if err != nil {
			return "", &sandbox.Error{Op: "--credential", Kind: sandbox.ErrInvalid, Problem: "the file cannot be read", Cause: err}
		}
		text = string(b)
	case f.typed != "":
		return f.typed, nil
	case text == "":
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			return "", &sandbox.Error{Op: "approvals", Kind: sandbox.ErrInvalid, Problem: "no credential says who answers",
				Hint: "give your credential in " + approverEnv + ", or --credential FILE"}
		}
		defer tty.Close()
		fmt.Fprint(tty, "Credential: ")
		b, err := term.ReadPassword(int(tty.Fd()))
		fmt.Fprintln(tty)
		if err != nil {
			return "", &sandbox.Error{Op: "credential", Kind: sandbox.ErrInvalid, Problem: "it could not be read", Cause: err}
		}
		text = string(b)
		f.typed = strings.TrimSpace(text)
	}
	return strings.TrimSpace(text), nil
}

func (a *app) approvalsList(f *approvalFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List what waits for an answer",
		Example: `  caisson approvals ls
  caisson approvals ls --all --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDesk(contextOf(cmd), f, toLook, func(d desk) error {
				list, err := d.list(contextOf(cmd), f)
				if err != nil {
					return err
				}
				return a.printRequests(f, list)
			})
		},
	}
	f.addCredential(cmd)
	cmd.Flags().BoolVarP(&f.all, "all", "a", false, "also what was answered in the last week")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print IDs alone")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until there is something")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func (a *app) printRequests(f *approvalFlags, list []*approval.Request) error {
	if f.json {
		if list == nil {
			list = []*approval.Request{}
		}
		a.printJSON(list)
		return nil
	}
	if f.quiet {
		for _, r := range list {
			fmt.Fprintln(a.out, r.ID)
		}
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATE\tASKED BY\tUNTIL\tWHAT")
	for _, r := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.State, approval.Text(r.Actor), r.Expires.Local().Format(time.TimeOnly), printable(r.About()))
	}
	return w.Flush()
}

func (a *app) approvalsShow(f *approvalFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show everything that a call would do, and its digest",
		Example: `  caisson approvals show apv_2xk7`,
		Args:    one("the ID of a question", "caisson approvals ls lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDesk(contextOf(cmd), f, toLook, func(d desk) error {
				r, err := d.get(contextOf(cmd), args[0])
				if err != nil {
					return err
				}
				if f.json {
					a.printJSON(r)
					return nil
				}
				fmt.Fprintf(a.out, "%s is %s", r.ID, r.State)
				if r.Approver != "" {
					fmt.Fprintf(a.out, ", by %s (%s)", approval.Text(r.Approver), r.Channel)
				}
				fmt.Fprintf(a.out, "\n%sdigest: %s\n", r.View.String(), r.Seal())
				return nil
			})
		},
	}
	f.addCredential(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

// addCredential adds the flag for who answers.
func (f *approvalFlags) addCredential(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&f.credential, "credential", "", "your credential is in `FILE`; else in "+approverEnv+", or typed")
	return cmd
}

func (a *app) approvalsApprove(f *approvalFlags) *cobra.Command {
	return f.addCredential(&cobra.Command{
		Use:   "approve ID [DIGEST]",
		Short: "Say yes, after looking at it",
		Example: `  caisson approvals approve apv_2xk7
  CAISSON_APPROVER=approver_… caisson approvals approve apv_2xk7 0b7c1f6f4f0a91de`,
		Args: some(1, 2, "the ID of a question, and without a terminal its digest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := contextOf(cmd)
			return a.withDesk(ctx, f, toAnswer, func(d desk) error {
				if err := d.enter(ctx); err != nil {
					return err
				}
				r, err := d.get(ctx, args[0])
				if err != nil {
					return err
				}
				if r.State != approval.Pending {
					return &sandbox.Error{Op: "approval " + r.ID, Kind: sandbox.ErrConflict, Problem: "it is " + string(r.State) + " already", Hint: "caisson approvals ls lists what waits"}
				}
				digest := r.Digest
				if len(args) > 1 {
					digest = args[1]
				} else if yes, err := a.confirm(ctx, r); err != nil {
					return err
				} else if !yes {
					fmt.Fprintf(a.out, "%s is as it was\n", r.ID)
					a.code = exitDenied
					return nil
				}
				if r, err = d.answer(ctx, r.ID, question.Answer{Yes: true, Digest: digest}); err == nil {
					fmt.Fprintf(a.out, "approved %s\n", r.ID)
				}
				return err
			})
		},
	})
}

func (a *app) approvalsDeny(f *approvalFlags) *cobra.Command {
	cmd := f.addCredential(&cobra.Command{
		Use:     "deny ID",
		Short:   "Say no; that is final",
		Example: `  caisson approvals deny apv_2xk7 --note 'not on a Friday'`,
		Args:    one("the ID of a question", "caisson approvals ls lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := contextOf(cmd)
			return a.withDesk(ctx, f, toAnswer, func(d desk) error {
				if err := d.enter(ctx); err != nil {
					return err
				}
				r, err := d.answer(ctx, args[0], question.Answer{Note: f.note})
				if err == nil {
					fmt.Fprintf(a.out, "denied %s\n", r.ID)
				}
				return err
			})
		},
	})
	cmd.Flags().StringVar(&f.note, "note", "", "say why, in a `TEXT` that who asked sees")
	emptyMeans(cmd.Flags(), "note")
	return cmd
}

func (a *app) approvalsEnroll(f *approvalFlags) *cobra.Command {
	return f.addCredential(&cobra.Command{
		Use:   "enroll NAME",
		Short: "Make an approver's credential and show it, once",
		Long: `Make an approver's credential and show it, once. The first approver of a state
directory needs no credential; every other one needs that of an approver who is
enrolled.`,
		Example: `  caisson approvals enroll ada`,
		Args:    one("the approver's name", "caisson approvals enroll ada"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := contextOf(cmd)
			return a.withApprovals(ctx, f, toEnroll, func(_ *question.Approvals, s *approval.Store) error {
				var by approval.Who
				there, err := s.Reachable(ctx, []approval.Channel{approval.CLI})
				if err == nil && there {
					by, err = a.approver(ctx, f, s)
				}
				if err != nil {
					return err
				}
				_, credential, err := s.Enroll(ctx, by, args[0])
				if err == nil {
					fmt.Fprintln(a.out, credential)
				}
				return err
			})
		},
	})
}

func (a *app) approvalsApprovers(f *approvalFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "approvers",
		Short:   "List who may approve",
		Example: `  caisson approvals approvers`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withApprovals(contextOf(cmd), f, toLook, func(_ *question.Approvals, s *approval.Store) error {
				list, err := s.Approvers(contextOf(cmd))
				if err != nil {
					return err
				}
				if f.json {
					a.printJSON(append([]*approval.Approver{}, list...))
					return nil
				}
				w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "ID\tNAME\tENROLLED\tREVOKED")
				for _, one := range list {
					revoked := "-"
					if !one.Revoked.IsZero() {
						revoked = one.Revoked.Local().Format(time.DateTime)
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", one.ID, one.Name, one.Created.Local().Format(time.DateTime), revoked)
				}
				return w.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func (a *app) approvalsRevoke(f *approvalFlags) *cobra.Command {
	return f.addCredential(&cobra.Command{
		Use:     "revoke NAME|ID",
		Short:   "Make an approver's credential invalid at once",
		Example: `  caisson approvals revoke ada`,
		Args:    one("an approver's name or ID", "caisson approvals approvers lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := contextOf(cmd)
			return a.withApprovals(ctx, f, toLook, func(_ *question.Approvals, s *approval.Store) error {
				by, err := a.approver(ctx, f, s)
				if err == nil {
					err = s.Revoke(ctx, by, args[0])
				}
				if err == nil {
					fmt.Fprintf(a.out, "revoked %s\n", printable(args[0]))
				}
				return err
			})
		},
	})
}
