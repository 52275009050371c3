// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/attack"
	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/kernel"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/toolcall"
)

type attackFlags struct {
	isolation, html string
	cases           []string
	list, json      bool
}

func (a *app) attackCommand() *cobra.Command {
	f := &attackFlags{}
	cmd := &cobra.Command{
		Use:   "attack [flags]",
		Short: "Attack this installation the way code in a sandbox would",
		Long: `Run the escape suite against a level of isolation on this host: plant canaries
outside, attack from inside, and look from outside at what came of it. What the
attack says of itself never makes a case pass.

It does no harm where an attack works: what is opened is not written to, what is
exhausted has a bound, and what is changed is a canary. Every sandbox goes the
way of caisson run, with the same policy and limits. The calls have a record of their
own, in the directory "attack" of the state directory.

Exit codes: 0 when nothing was breached; 1 when something was, or a case did not
run to its end; 125 when caisson could not attack at all.`,
		Example: `  caisson attack
  caisson attack --isolation gvisor --html report.html
  caisson attack --json
  caisson attack --list
  caisson attack --case F13 --case L01`,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return a.doAttack(cmd, f) },
		SilenceErrors: true, SilenceUsage: true,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.isolation, "isolation", "", "`LEVEL` of isolation to attack ("+policy.DefaultIsolation+")")
	fs.StringArrayVar(&f.cases, "case", nil, "run this case alone: `ID`; may be repeated")
	fs.BoolVar(&f.list, "list", false, "list the cases and run none")
	fs.BoolVar(&f.json, "json", false, "print one JSON object")
	a.completeLevels(cmd)
	fs.StringVar(&f.html, "html", "", "write a page for a browser as well: `FILE`")
	a.inState(cmd)
	return cmd
}

func (a *app) doAttack(cmd *cobra.Command, f *attackFlags) error {
	for i, id := range f.cases {
		f.cases[i] = strings.ToUpper(id)
		if _, ok := attack.Find(f.cases[i]); !ok {
			return usage(cmd, "there is no case "+printable(id), "caisson attack --list lists them")
		}
	}
	if f.list {
		a.listAttacks(f)
		return nil
	}
	if f.html != "" { // a minute's attack is not for nothing
		if info, err := os.Stat(filepath.Dir(f.html)); err != nil || !info.IsDir() {
			return &sandbox.Error{Op: "--html " + sandbox.Quoted(f.html), Kind: sandbox.ErrInvalid, Problem: "there is no directory for it", Hint: "make it, or choose another place", Cause: err}
		}
	}
	r, err := a.attack(cmd, f)
	if err != nil {
		return err
	}
	if f.html != "" {
		if err := os.WriteFile(f.html, attack.Page(r), 0o644); err != nil {
			return &sandbox.Error{Op: "write " + printable(f.html), Kind: sandbox.ErrUnavailable, Problem: "the page cannot be written", Cause: err}
		}
	}
	if f.json {
		a.printJSON(r.Object())
	} else {
		a.printAttack(r)
	}
	switch {
	case r.Count(attack.Breach)+r.Count(attack.Unclear) > 0:
		a.code = exitFault
	case r.Count(attack.Pass) == 0: // nothing was tried, so nothing was shown
		a.code = exitCannot
	}
	return nil
}

// attack runs the suite on a session as run has it.
func (a *app) attack(cmd *cobra.Command, f *attackFlags) (*attack.Report, error) {
	// What was planted is taken away before caisson ends.
	ctx, stop := signal.NotifyContext(contextOf(cmd), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	level := cmp.Or(f.isolation, policy.DefaultIsolation)
	// Thousands of calls are nothing that their user wants in the record.
	users := a.statePath()
	a.state = filepath.Join(users, "attack")
	opened, err := a.open(ctx, "")
	if err != nil {
		return nil, err
	}
	defer opened.close()
	if err := lend(users, a.statePath()); err != nil {
		return nil, &sandbox.Error{Op: "attack " + printable(level), Kind: sandbox.ErrUnavailable, Problem: "the state directory cannot be used", Hint: "free some space there", Cause: err}
	}
	caps, err := a.attackable(ctx, level)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, &sandbox.Error{Op: "attack " + level, Kind: sandbox.ErrUnavailable, Problem: "caisson does not find its own file", Cause: err}
	}
	done, total := 0, len(f.cases)
	if total == 0 {
		total = len(attack.Cases())
	}
	progress := func(attack.Finding) {}
	if isTerminal(a.err) && !f.json {
		progress = func(attack.Finding) {
			done++
			fmt.Fprintf(a.err, "\r\x1b[K%s: %d of %d attacks", level, done, total)
		}
		fmt.Fprintf(a.err, "%s: 0 of %d attacks", level, total)
		defer fmt.Fprint(a.err, "\r\x1b[K")
	}
	r, err := attack.Run(ctx, attack.Options{
		Session: opened.Session, Isolation: level, State: a.statePath(), Program: program, Only: f.cases, OnFinding: progress,
		Again: a.againIn(program), Open: a.office, Copies: !caps.ReadWrite, Lend: lend,
	})
	if ctx.Err() != nil {
		return nil, &sandbox.Error{Op: "attack " + level, Kind: sandbox.ErrUnavailable, Problem: "it was interrupted; nothing that it planted is left"}
	}
	return r, err
}

// lend has in one state directory what virtual machines need of another: kernels, and roots
// that were packed, which takes a minute and gigabytes.
func lend(from, to string) error {
	from, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(from, image.PacksDir), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, name := range []string{kernel.Dir, image.PacksDir} {
		if err := os.Symlink(filepath.Join(from, name), filepath.Join(to, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// attackable is what a level can do, if it can be attacked here.
func (a *app) attackable(ctx context.Context, level string) (sandbox.Capabilities, error) {
	no := func(problem, hint string) (sandbox.Capabilities, error) {
		return sandbox.Capabilities{}, &sandbox.Error{Op: "attack " + printable(level), Kind: sandbox.ErrUnsupported, Problem: problem, Hint: hint}
	}
	base, variant, varied := strings.Cut(level, ":")
	d := a.drivers()[base]
	if v, ok := d.(sandbox.Varied); ok && varied {
		d = v.Variant(variant)
	} else if varied {
		d = nil
	}
	if d == nil {
		return no("this build has no such level", "it has "+strings.Join(a.levelNames(), ", "))
	}
	caps, err := d.Probe(ctx)
	switch {
	case err != nil:
		return caps, err
	case varied && !caps.EROFS: // another engine's runtime
		return no("the attacks need files of this host, and none can be shown there", "attack "+base)
	case caps.Unusable != "":
		return no(caps.Unusable, cmp.Or(caps.Remedy, "caisson doctor says what is missing"))
	}
	return caps, nil
}

// againIn makes commands of this program whose calls stand in the record of the attack.
func (a *app) againIn(program string) func(args ...string) *exec.Cmd {
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "CAISSON_STATE="+a.state)
		return cmd
	}
}

// office opens a caisson for the cases about the policy, as tools call does.
func (a *app) office(ctx context.Context, o attack.OfficeOptions) (*attack.Office, error) {
	opened, err := a.openIn(ctx, o.Dir, o.Policy)
	if err != nil {
		return nil, err
	}
	return &attack.Office{Caller: toolcall.Of(opened.Session), Close: opened.close}, nil
}

func (a *app) listAttacks(f *attackFlags) {
	if f.json {
		a.printJSON(map[string]any{"cases": attack.Cases()})
		return
	}
	for _, c := range attack.Cases() {
		fmt.Fprintf(a.out, "%s  %s\n", c.ID, c.Title)
	}
}

// printAttack is the table for people. What is said of many cases is said once.
func (a *app) printAttack(r *attack.Report) {
	fmt.Fprintf(a.out, "Attacks on %s from inside a sandbox; pass: it did not work.\n", r.Isolation)
	first := map[string]string{}
	colours := map[attack.Verdict]string{attack.Pass: "32", attack.Breach: "1;31", attack.NotApplicable: "2", attack.Unclear: "33"}
	for _, f := range r.Cases {
		fmt.Fprintf(a.out, "%s  %s  %s\n", f.ID, a.tint(colours[f.Verdict], fmt.Sprintf("%-14s", f.Verdict)), f.Title)
		if id, said := first[f.Reason+"\x00"+f.Mend]; said && f.Reason != "" && f.Verdict != attack.Breach {
			fmt.Fprintf(a.out, "     why: as %s\n", id)
			continue
		}
		first[f.Reason+"\x00"+f.Mend] = f.ID
		for _, x := range []struct{ word, text string }{{"seen", f.Reason}, {"fix", f.Mend}} {
			if x.word == "seen" && f.Verdict == attack.NotApplicable {
				x.word = "why"
			}
			if x.text != "" {
				fmt.Fprintf(a.out, "     %s: %s\n", x.word, printable(x.text))
			}
		}
	}
	fmt.Fprintf(a.out, "%s: %s in %s\n", r.Isolation, r.Summary(), r.Took.Round(100*time.Millisecond))
}

// tint colours s when stdout is a terminal that wants it.
func (a *app) tint(sgr, s string) string {
	if !isTerminal(a.out.file) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}
