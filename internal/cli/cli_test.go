// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/sandbox"
)

func TestExitCode(t *testing.T) {
	code := func(n int) *int { return &n }
	for name, tc := range map[string]struct {
		r    sandbox.Result
		want int
	}{
		"success":  {sandbox.Result{Status: sandbox.StatusSuccess, ExitCode: code(0)}, 0},
		"own code": {sandbox.Result{Status: sandbox.StatusError, ExitCode: code(42)}, 42},
		"own 124":  {sandbox.Result{Status: sandbox.StatusError, ExitCode: code(124)}, 124},
		"signal":   {sandbox.Result{Status: sandbox.StatusError, Signal: "SIGSEGV"}, 139},
		"timeout":  {sandbox.Result{Status: sandbox.StatusTimeout, Signal: "SIGKILL"}, 124},
		"limit":    {sandbox.Result{Status: sandbox.StatusResourceExceeded, Signal: "SIGKILL"}, 137},
		"denied":   {sandbox.Result{Status: sandbox.StatusDenied}, 126},
		"nothing":  {sandbox.Result{Status: sandbox.StatusError}, 125},
	} {
		if got := exitCode(&tc.r); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestFailedCode(t *testing.T) {
	denied := &sandbox.Error{Kind: sandbox.ErrDenied, Rule: "p.yaml:3"}
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"refused":       {denied, exitDenied},
		"by a daemon":   {fmt.Errorf("create: %w", denied), exitDenied},
		"some of many":  {errors.Join(&sandbox.Error{Kind: sandbox.ErrUnavailable}, denied), exitDenied},
		"wrong usage":   {&sandbox.Error{Kind: sandbox.ErrInvalid, Rule: "p.yaml:3"}, exitCannot},
		"an open state": {&sandbox.Error{Kind: sandbox.ErrDenied}, exitCannot},
		"anything else": {errors.New("x"), exitCannot},
	} {
		if got := failedCode(tc.err); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// Every command has examples that begin with its own name, a short text, and
// flags with a text.
func TestCommandsAreDocumented(t *testing.T) {
	a := &app{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() != "help" {
			if c.Short == "" || !strings.Contains(c.Example, c.Root().Name()) {
				t.Errorf("%s has no text or no example", c.CommandPath())
			}
			for _, line := range strings.Split(c.Example, "\n") {
				if !strings.HasPrefix(line, "  ") {
					t.Errorf("%s: example %q is not indented", c.CommandPath(), line)
				}
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(a.root())
}

// Whatever keeps something in the state directory, or looks at it, has --state: all
// commands but those that cannot need it.
func TestEveryCommandHasState(t *testing.T) {
	without := []string{"policy init", "policy check", "policy schema", "tools ls", "tools export", "version", "completion", "man", "help"}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "caisson ")
		f := c.Flags().Lookup("state")
		switch {
		case path == "sandbox": // a daemon's
			return
		case c.HasSubCommands() && path != "mcp":
		case (f != nil) == slices.Contains(without, path):
			t.Errorf("%s: %v", path, f)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk((&app{}).root())
}

// Every limit there is has a flag.
func TestEveryLimitHasAFlag(t *testing.T) {
	for _, n := range sandbox.LimitNames() {
		if flagOf(n) == "" {
			t.Errorf("%s has none", n)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain ü 日": "plain ü 日", "a\x1b[31mb": `a\x1b[31mb`, "a\nb": "a; b", "\xff": "\uFFFD", "\u202e": `\u202e`, "\u009b": `\u009b`,
	} {
		if got := printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b]0;x\a\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range printable(s) {
			if r < ' ' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
				t.Fatalf("%q lets %q through", s, r)
			}
		}
	})
}

func TestReadTime(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	for s, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "30d": now.AddDate(0, 0, -30), "9000h": now.Add(-9000 * time.Hour), "36500d": now.AddDate(0, 0, -36500),
		"2026-01-02": time.Date(2026, 1, 2, 0, 0, 0, 0, time.Local), "2026-01-02T03:04:05Z": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	} {
		if got, err := readTime("--since", s, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"x", "-1d", "1d2", "2026-13-01", "5", "d", "+1d", "0", "-1h", "1000000h", "99999999h", "36501d", "9223372036854775000d", "9223372036854775808d"} {
		if got, err := readTime("--since", s, now); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

func TestPseudoDate(t *testing.T) {
	for v, want := range map[string]string{"v0.0.0-20260905010203-abcdef123456": "2026-09-05", "v1.2.4-0.20260905010203-abcdef123456": "2026-09-05", "v1.2.3": "", "(devel)": "", "": ""} {
		got, ok := pseudoDate(v)
		if ok != (want != "") || ok && got.Format("2006-01-02") != want {
			t.Errorf("%s: %v, %v", v, got, ok)
		}
	}
}

func TestReadEnv(t *testing.T) {
	t.Setenv("MINE", "x=y")
	env, _, err := readEnv([]string{"A=1", "B=", "MINE", "A=2=3"}, nil)
	if err != nil || env["A"] != "2=3" || env["MINE"] != "x=y" || len(env) != 3 {
		t.Errorf("%v, %v", env, err)
	}
}

func FuzzFlags(f *testing.F) {
	f.Add("--memory", "128MiB")
	f.Add("--mount", "./a:/b:rw")
	f.Add("--collect", "out/*:x")
	f.Add("--watch", "cpu_percent > 1")
	f.Add("--workspace", ".:cow")
	f.Fuzz(func(t *testing.T, flag, value string) {
		a := &app{}
		cmd := a.runCommand()
		if err := cmd.ParseFlags([]string{flag, value, "--", "true"}); err != nil {
			return
		}
		for _, change := range []func(*runFlags){
			func(r *runFlags) { r.mounts = []string{value} }, func(r *runFlags) { r.workspace = value },
			func(r *runFlags) { r.collect = []string{value} }, func(r *runFlags) { r.env = []string{value} }, func(r *runFlags) { r.watch = []string{value} },
		} {
			r := &runFlags{}
			r.limits.add(a.versionCommand().Flags(), sandbox.DefaultLimits())
			change(r)
			c, _, err := a.call(cmd, r, []string{"--code"})
			var e *sandbox.Error
			if err != nil && (!errors.As(err, &e) || e.Problem == "") {
				t.Fatalf("%q: an error that is none of ours: %v", value, err)
			}
			if err == nil && c == nil {
				t.Fatal("neither a call nor an error")
			}
		}
	})
}
