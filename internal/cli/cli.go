// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line: one of the frontends. It turns flags into a
// [session.Call], streams what the program reads and writes, and turns what
// came of it into an exit code and a sentence.
//
// It names no level of isolation; cmd/caisson hands them over.
package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/sandbox"
)

// The exit codes of caisson itself. A program's own code, and 128 plus its
// signal, pass through. 126 and 127 of a program that could not be executed or
// found are the program side's, as in a shell.
const (
	exitOK       = 0
	exitDoctor   = 1   // doctor: the default level cannot run
	exitFault    = 1   // policy check, audit verify, attack: what was looked at is not in order
	exitTimeout  = 124 // the wall-clock limit ended it
	exitCannot   = 125 // caisson could not, or would not run with less; wrong usage too, as docker has it
	exitDenied   = 126 // the policy, or a built-in rule, refused it
	exitNotFound = 127 // the program side's, of one that is not there
	exitLimit    = 137 // another limit ended it
)

// Main runs one command line and returns the exit code. args[0] is the
// program's name; drivers makes the levels, by name, when a command needs them, for the
// state directory that it names.
func Main(args []string, drivers func(state string) map[string]sandbox.Driver) int {
	if code, inside := probed(args); inside {
		return code
	}
	a := &app{in: os.Stdin, out: &printed{file: os.Stdout}, err: os.Stderr}
	a.drivers = sync.OnceValue(func() map[string]sandbox.Driver { return drivers(a.state) })
	return a.run(args[1:])
}

// app is one command line.
type app struct {
	in      *os.File
	out     *printed
	err     *os.File
	drivers func() map[string]sandbox.Driver
	state   string // --state; empty is the usual place
	code    int    // set by commands that end with a code of their own
}

func (a *app) run(args []string) int {
	root := a.root(args...)
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteC()
	if err != nil && !a.unprinted(err) {
		a.fail(cmd, err)
		a.code = failedCode(err)
	}
	if e := a.out.err(); e != nil {
		a.say("%s", e.Error())
		a.detail("hint", e.Hint)
		return exitCannot
	}
	return a.code
}

// root is the command line as far as args can mean it: a `caisson run` pays for no
// other command. Without args it is all of it.
func (a *app) root(args ...string) *cobra.Command {
	asked := false // for versions, where every program is asked
	root := &cobra.Command{
		Use:   "caisson",
		Short: "Run untrusted code in a sandbox",
		Long: `caisson runs what AI agents write (code, shell commands) where it can do no
harm: behind gVisor's application kernel, with no network, no file of yours that
you did not name, and a limit on everything.

Records, keys and images are in a state directory: /var/lib/caisson for root,
~/.local/state/caisson for others. --state DIR names another one, as does the
variable CAISSON_STATE.

Exit codes: 125 what caisson could not do, and a wrong command line; 126 what the
policy, or a built-in rule, refused. A program that ran has its own.`,
		Example: `  caisson run -- python3 -c 'print(2**100)'
  caisson run --lang python --code 'print(6*7)'
  caisson run --mount ./data.csv analyse.py data.csv
  caisson doctor`,
		Args: a.unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asked {
				a.printVersions()
				return nil
			}
			return cmd.Help()
		},
		SilenceErrors: true,
		SilenceUsage:  true,

		PersistentPreRunE: allGiven,
	}
	root.Flags().BoolVar(&asked, "version", false, "print what caisson version prints")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(a.help(root.HelpFunc()))
	root.CompletionOptions.DisableDefaultCmd = true
	if len(args) > 0 && args[0] == "run" {
		root.AddCommand(a.runCommand())
		return root
	}
	root.AddCommand(a.commands()...)
	root.SetHelpCommand(a.helpCommand(root))
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		plainUsages(root)
		noFiles(root)
	}
	return root
}

// flagError turns pflag's errors into ours, with the nearest flag there is.
func flagError(cmd *cobra.Command, err error) error {
	if e := misnamed(cmd); e != nil {
		return e // whose flags these are is not known
	}
	hint := cmd.CommandPath() + " --help lists the flags"
	var value *pflag.InvalidValueError
	var own *sandbox.Error
	switch {
	case errors.As(err, &value) && errors.As(err, &own):
		return &sandbox.Error{Op: "--" + value.GetFlag().Name, Kind: own.Kind, Problem: own.Problem, Hint: own.Hint}
	case errors.As(err, &value) && value.GetFlag().Value.Type() == "bool":
		name := "--" + value.GetFlag().Name
		return &sandbox.Error{Op: name, Kind: sandbox.ErrInvalid, Problem: sandbox.Quoted(value.GetValue()) + " is neither true nor false", Hint: "write " + name + ", or " + name + "=false"}
	case errors.As(err, &own):
		return err
	}
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "unknown flag: --"); ok {
		text = "there is no flag --" + printable(name)
		if near := nearestFlag(cmd, name); near != "" {
			hint = "did you mean --" + near + "?"
		}
	}
	return &sandbox.Error{Op: cmd.CommandPath(), Kind: sandbox.ErrInvalid, Problem: text, Hint: hint}
}

// noArgs is cobra.NoArgs with a hint.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &sandbox.Error{Op: cmd.CommandPath(), Kind: sandbox.ErrInvalid, Problem: "it takes no argument " + printable(args[0]), Hint: cmd.CommandPath() + " --help"}
}

// unprinted says whether err is that of a write to standard output, of which run
// speaks in any case.
func (a *app) unprinted(err error) bool { return a.out.failed != nil && errors.Is(err, a.out.failed) }

// fail says why nothing ran: as sentences, or with --json as an object.
func (a *app) fail(cmd *cobra.Command, err error) {
	if f := cmd.Flags().Lookup("json"); f != nil && f.Value.String() == "true" {
		a.printJSON(map[string]any{"error": errorObject(err)})
		return
	}
	for i, one := range split(err) {
		if i > 0 && errors.Is(one, context.Canceled) {
			continue
		}
		a.say("%s", one.Error())
		if e := (*sandbox.Error)(nil); errors.As(one, &e) {
			if e.Rule != "" && !strings.Contains(e.Error(), e.Rule) {
				a.detail("rule", e.Rule)
			}
			if e.Hint != "" {
				a.detail("hint", e.Hint)
			}
		}
	}
}

// split takes joined errors apart: a policy file's faults are a line each. A sentence
// that is made of several is one.
func split(err error) []error {
	j, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(j.Unwrap()...).Error() {
		return []error{err}
	}
	var all []error
	for _, e := range j.Unwrap() {
		all = append(all, split(e)...)
	}
	return all
}

// contextOf is the command's context; cobra has none where none was set.
func contextOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
