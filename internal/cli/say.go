// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// say writes one line for people to stderr. What it shows may hold names from
// files and programs: controls are spelled out, so that none reaches the
// terminal.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.err, a.paint("1;31", "caisson:")+" "+printable(fmt.Sprintf(format, args...)))
}

// note is say without alarm.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.err, a.paint("2", "caisson: "+printable(fmt.Sprintf(format, args...))))
}

// detail is a second line below say.
func (a *app) detail(what, text string) {
	fmt.Fprintln(a.err, "  "+a.paint("2", what+":")+" "+printable(text))
}

// paint colours s when stderr is a terminal that wants it.
func (a *app) paint(sgr, s string) string {
	if !isTerminal(a.err) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}

func isTerminal(f *os.File) bool { return f != nil && term.IsTerminal(int(f.Fd())) }

// printable spells out what is not text, and keeps line breaks as "; ".
func printable(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case r == '\n':
			b.WriteString("; ")
		case r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// typed is a command line as a shell takes it.
func typed(args []string) string {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = arg
		if arg == "" || strings.ContainsFunc(arg, func(r rune) bool {
			return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:=,+@%", r)
		}) {
			words[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// errorObject is an error as agents get it.
func errorObject(err error) map[string]string {
	o := map[string]string{"problem": strings.ToValidUTF8(err.Error(), "\uFFFD")}
	var e *sandbox.Error
	if errors.As(err, &e) {
		o["op"], o["hint"], o["rule"] = e.Op, e.Hint, e.Rule
		o["problem"] = strings.ToValidUTF8(strings.TrimPrefix(e.Error(), e.Op+": "), "\uFFFD")
	}
	if more := split(err); len(more) > 1 {
		for _, one := range more[1:] {
			o["problem"] += "; " + one.Error()
		}
	}
	for _, k := range []struct {
		kind error
		name string
	}{{sandbox.ErrInvalid, "invalid"}, {sandbox.ErrNotFound, "not_found"}, {sandbox.ErrUnsupported, "unsupported"},
		{sandbox.ErrDenied, "denied"}, {sandbox.ErrConflict, "conflict"}, {sandbox.ErrUnavailable, "unavailable"},
		{sandbox.ErrExhausted, "exhausted"}} {
		if errors.Is(err, k.kind) {
			o["kind"] = k.name
			break
		}
	}
	for k, v := range o {
		if v == "" {
			delete(o, k)
		}
	}
	return o
}

// nearestFlag is the flag of cmd that name was probably meant to be, also by a user who
// knows it from docker run.
func nearestFlag(cmd *cobra.Command, name string) string {
	if ours := map[string]string{"volume": "mount", "network": "allow", "cwd": "workdir"}[name]; ours != "" && cmd.Flags().Lookup(ours) != nil {
		return ours
	}
	best, least := "", 3
	if len(name) < 4 {
		least = 2
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := policy.Distance(name, f.Name)
		if len(name) >= 3 && strings.HasPrefix(f.Name, name) {
			d = 0
		}
		if d < least && !f.Hidden {
			best, least = f.Name, d
		}
	})
	return best
}
