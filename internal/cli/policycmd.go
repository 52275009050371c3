// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/internal/config"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/toolcall"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Write, check and explain policy files",
		Example: `  caisson policy init --preset data-analysis > caisson.yaml
  caisson policy check caisson.yaml
  caisson policy explain caisson.yaml`,
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	test, explain := a.policyTest(), a.policyExplain()
	a.inState(test, explain) // what they have read in a sandbox is recorded
	cmd.AddCommand(a.policyInit(), a.policyCheck(), test, explain, a.policySchema())
	return cmd
}

func (a *app) policyInit() *cobra.Command {
	var preset, output string
	cmd := &cobra.Command{
		Use:   "init [flags]",
		Short: "Write a commented policy file to start from",
		Example: `  caisson policy init > caisson.yaml
  caisson policy init --preset build -o caisson.yaml`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := policy.Preset(preset)
			if err != nil {
				return err
			}
			if output == "" {
				_, err = a.out.Write(text)
				return err
			}
			// O_EXCL: an existing policy is never lost to a starter.
			f, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if errors.Is(err, fs.ErrExist) {
				return &sandbox.Error{Op: "write " + sandbox.Quoted(output), Kind: sandbox.ErrConflict, Problem: "it exists already", Hint: "remove it first, or choose another name"}
			}
			if err == nil {
				_, err = f.Write(text)
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				return &sandbox.Error{Op: "write " + sandbox.Quoted(output), Kind: sandbox.ErrUnavailable, Problem: "it cannot be written", Hint: "choose another place", Cause: err}
			}
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().StringVar(&preset, "preset", policy.Presets()[0], "`NAME` of the starter: "+strings.Join(policy.Presets(), ", "))
	completeWords(cmd, "preset", policy.Presets()...)
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FILE` to write; it must not exist yet (standard output)")
	return cmd
}

func (a *app) policyCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "Say whether policy files are well-formed",
		Long: `Say whether policy files are well-formed, and whether they keep within the
system's policy. Every fault is shown with its place, FILE:LINE:COLUMN. The exit
code is 1 when there is one.`,
		Example: `  caisson policy check caisson.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(cmd, "there is no file to check", "name one: caisson policy check caisson.yaml")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				p, err := config.Policy(name)
				if err == nil {
					// A file that goes beyond the system's denies every call.
					if v := p.Decide(&policy.Call{Kind: policy.RunCommand, Argv: []string{"true"}, Operator: true}); v.Decision == policy.Deny {
						err = v.Err()
					}
				}
				if err != nil {
					a.fail(cmd, err)
					a.code = max(a.code, checkCode(err))
					continue
				}
				fmt.Fprintf(a.out, "%s: ok\n", name)
			}
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
	}
}

// checkCode tells a policy with a fault from one that was not looked at.
func checkCode(err error) int {
	if errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrUnavailable) {
		return exitCannot
	}
	return exitFault
}

func (a *app) policyTest() *cobra.Command {
	return &cobra.Command{
		Use:   "test FILE...",
		Short: "Run the cases that policy files have in tests",
		Long: `Decide each call in the section tests of policy files, and compare the verdict
with what the case wants. Nothing of a call is run; where the policy has rules
about code, what the call would run is read in a sandbox, as it is for the call
itself. The exit code is 1 when one differs, or when there is none.`,
		Example: `  caisson policy test caisson.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(cmd, "there is no file to test", "name one: caisson policy test caisson.yaml")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if err := a.testPolicy(contextOf(cmd), name); err != nil {
					a.fail(cmd, err)
					a.code = exitFault
				}
			}
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
	}
}

// testPolicy runs the cases of one file.
func (a *app) testPolicy(ctx context.Context, name string) (err error) {
	f, err := config.File(name)
	if err != nil {
		return err
	}
	p, err := config.Over(f)
	if err != nil {
		return err
	}
	if len(f.Tests) == 0 {
		return &sandbox.Error{Op: name, Kind: sandbox.ErrInvalid, Problem: "it has no tests",
			Hint: "write tests: [{call: {argv: [ls]}, want: allow}]"}
	}
	seer := &seer{a: a, policy: p, file: name}
	defer func() { err = errors.Join(err, seer.close()) }()
	for _, t := range f.Tests {
		v, err := seer.foresee(ctx, t.Wish)
		if err != nil {
			return err
		}
		state := "ok"
		if v.Decision != t.Want {
			state, a.code = "FAILED: want "+t.Want.String(), exitFault
		}
		fmt.Fprintf(a.out, "%s:%d: %s: %s%s\n", name, t.At.Line, state, v.Decision, printable(because(t.Name, v)))
	}
	return nil
}

// seer decides calls that are not made. It opens the state directory when there is
// something to be read in a sandbox, and not before.
type seer struct {
	a      *app
	policy *policy.Policy
	file   string
	opened *opened
}

func (s *seer) foresee(ctx context.Context, w policy.Wish) (policy.Verdict, error) {
	w, err := toolcall.Carried(s.policy, w)
	if err != nil {
		return policy.Verdict{}, err
	}
	call, err := session.Judged(w)
	if err != nil {
		return policy.Verdict{}, err
	}
	v := s.policy.Decide(call)
	if !session.NeedsReading(&v) {
		return v, nil
	}
	if s.opened == nil {
		if s.opened, err = s.a.openUnder(ctx, s.a.state, s.policy, s.file); err != nil {
			return policy.Verdict{}, err
		}
	}
	return s.opened.Foresee(ctx, w)
}

func (s *seer) close() error {
	if s.opened == nil {
		return nil
	}
	return s.opened.close()
}

// because is what stands behind a verdict: the case's name, the reason, the rule.
func because(name string, v policy.Verdict) string {
	s := ""
	if name != "" {
		s = " (" + name + ")"
	}
	if v.Decision != policy.Allow {
		s += ": " + v.Reason + " [" + v.Rule + "]"
	}
	return s
}

// explained is what is wanted of an explanation.
type explained struct {
	call          string
	json, clauses bool
}

// explainCall says what becomes of one call, and where that is asked for under what it
// would run; that comes first, so that the verdict is what one sees.
func (a *app) explainCall(ctx context.Context, seer *seer, f explained, levels map[string]sandbox.Capabilities) error {
	w, err := policy.ParseCall([]byte(f.call))
	if err != nil {
		return err
	}
	v, err := seer.foresee(ctx, w)
	if err = errors.Join(err, seer.close()); err != nil {
		return err
	}
	var clauses []policy.Clause
	if v.Decision != policy.Deny && v.Plan.Isolation != "" { // a tool that starts nothing runs under nothing
		clauses = policy.ExplainPlan(seer.policy, w.Call.Operator, &v.Plan, levels)
	}
	if f.json {
		a.printJSON(map[string]any{"decision": v.Decision.String(), "rule": v.Rule, "reason": v.Reason, "hint": v.Hint, "clauses": clauses})
		return nil
	}
	if f.clauses && clauses != nil {
		a.printClauses(clauses, levels)
	}
	fmt.Fprintf(a.out, "%s: %s\n", v.Decision, printable(v.Reason))
	if v.Decision != policy.Allow {
		fmt.Fprintf(a.out, "  rule: %s\n  hint: %s\n", printable(v.Rule), printable(v.Hint))
	}
	return nil
}

func (a *app) policyExplain() *cobra.Command {
	var f explained
	cmd := &cobra.Command{
		Use:   "explain [FILE]",
		Short: "Say clause by clause what is in force, and how each level holds it",
		Long: `Say clause by clause what is in force, and how each level holds it on this host.

With --call say what becomes of one call, and why; nothing of it is run. --clauses
says first what it would run under, which --json always has.`,
		Example: `  caisson policy explain
  caisson policy explain caisson.yaml
  caisson policy explain --json caisson.yaml
  caisson policy explain --call '{"argv": ["git", "push"]}' caisson.yaml
  caisson policy explain --call '{"argv": ["git", "log"]}' --clauses caisson.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(cmd, "it takes one policy file", "explain each by itself")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.clauses && !cmd.Flags().Changed("call") {
				return usage(cmd, "--clauses goes with --call", "without a call the clauses are shown in any case")
			}
			file := ""
			if len(args) > 0 {
				file = args[0]
			}
			p, err := config.Policy(file)
			if err != nil {
				return err
			}
			levels, err := a.capabilities(contextOf(cmd))
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("call") {
				return a.explainCall(contextOf(cmd), &seer{a: a, policy: p, file: file}, f, levels)
			}
			clauses := policy.Explain(p, levels)
			if f.json {
				a.printJSON(map[string]any{"policy": file, "digest": p.Digest(), "clauses": clauses})
				return nil
			}
			a.printClauses(clauses, levels)
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&f.clauses, "clauses", false, "with --call: say first what it would run under")
	cmd.Flags().StringVar(&f.call, "call", "", "say what becomes of this call, and why: `JSON`, such as {\"argv\": [\"ls\"]}")
	return cmd
}

func (a *app) capabilities(ctx context.Context) (map[string]sandbox.Capabilities, error) {
	levels := map[string]sandbox.Capabilities{}
	for name, d := range a.drivers() {
		caps, err := d.Probe(ctx)
		if err != nil {
			return nil, err
		}
		levels[name] = caps
		if v, ok := d.(sandbox.Varied); ok && caps.Unusable == "" {
			if err := variants(ctx, name, v, levels); err != nil {
				return nil, err
			}
		}
	}
	return levels, nil
}

// variants adds those of a level that this host has.
func variants(ctx context.Context, level string, d sandbox.Varied, levels map[string]sandbox.Capabilities) error {
	for _, name := range policy.Isolations() {
		variant, ok := strings.CutPrefix(name, level+":")
		if !ok {
			continue
		}
		caps, err := d.Variant(variant).Probe(ctx)
		if err != nil {
			return err
		}
		if caps.Unusable == "" {
			levels[name] = caps
		}
	}
	return nil
}

func (a *app) policySchema() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of policy files, for editors",
		Example: `  caisson policy schema > caisson.schema.json`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(policy.Schema())
			return err
		},
		SilenceErrors: true, SilenceUsage: true,
	}
}
