// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/internal/linux/hostfacts"
	"github.com/caisson-run/caisson/internal/linux/scope"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this host can do, what is missing, and the command that mends it",
		Long: `Say where the state directory is, and for each level of isolation what works on
this host, what does not, and the command that mends it. Inside a container, or
wherever a filter is on caisson itself, it says which system calls a level misses.
The exit code is 1 when a run on the default level cannot begin.`,
		Example: `  caisson doctor
  caisson doctor --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := contextOf(cmd)
			// As run does: the answer is for what a run would find.
			_, _ = scope.Enter(ctx)
			state := a.lookedAtState()
			if state.Problem != "" {
				a.code = exitDoctor
			}
			facts := hostfacts.Gather(ctx, state.Path)
			problems := facts.Problems()
			var levels []levelJSON
			for _, name := range a.levelNames() {
				caps, err := a.drivers()[name].Probe(ctx)
				if err != nil {
					caps.Unusable = err.Error()
					caps.Remedy = sandbox.Hint(err)
				}
				l := examined(name, missing(name, caps, problems), time.Now())
				levels = append(levels, l)
				if l.Default && l.Problem != "" {
					a.code = exitDoctor
				}
			}
			if len(levels) == 0 {
				a.code = exitDoctor
			}
			if asJSON {
				said := map[string]any{"state": state, "levels": levels}
				if facts.Container != "" {
					said["container"] = facts.Container
				}
				a.printJSON(said)
				return nil
			}
			a.printState(state)
			if facts.Container != "" {
				fmt.Fprintf(a.out, "inside a container (%s): what is to be mended are its settings\n", printable(facts.Container))
			}
			a.printDoctor(levels)
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	a.inState(cmd)
	return cmd
}

// missing adds to a level's own answer what it lacks of this host: its driver
// starts nothing to find out, and says only what it sees.
func missing(level string, caps sandbox.Capabilities, problems []hostfacts.Problem) sandbox.Capabilities {
	caps.Notes = slices.Clone(caps.Notes)
	for _, p := range problems {
		switch {
		case slices.Contains(p.Levels, level) && caps.Unusable == "":
			caps.Unusable, caps.Remedy = p.Why, p.Remedy
		case slices.Contains(p.Levels, level), p.What == "disk space":
			caps.Notes = append(caps.Notes, withRemedy(p.Why, p.Remedy))
		}
	}
	return caps
}

func withRemedy(s, remedy string) string {
	if remedy == "" {
		return s
	}
	return s + " (fix: " + remedy + ")"
}

// stateJSON is what doctor found out about the state directory, without which nothing runs.
type stateJSON struct {
	Path    string `json:"path"` // where it lies, or would be made
	Problem string `json:"problem,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

func (a *app) lookedAtState() stateJSON {
	path, err := store.Look(a.place())
	if err == nil || errors.Is(err, sandbox.ErrUnsupported) { // no level is here, then
		return stateJSON{Path: path}
	}
	s := stateJSON{Path: path, Problem: err.Error(), Remedy: sandbox.Hint(err)}
	if e := (*sandbox.Error)(nil); errors.As(err, &e) {
		s.Problem = e.Problem
	}
	return s
}

// statePath is where the state directory lies, or would be made.
func (a *app) statePath() string { return a.lookedAtState().Path }

func (a *app) printState(s stateJSON) {
	fmt.Fprintf(a.out, "state directory %s", printable(s.Path))
	if s.Problem != "" {
		fmt.Fprintf(a.out, " cannot be used: %s\n  fix: %s", s.Problem, s.Remedy)
	}
	fmt.Fprintln(a.out)
}

// levelNames are the levels of this build, the default first.
func (a *app) levelNames() []string {
	names := slices.Sorted(maps.Keys(a.drivers()))
	slices.SortStableFunc(names, func(x, y string) int {
		switch {
		case x == policy.DefaultIsolation:
			return -1
		case y == policy.DefaultIsolation:
			return 1
		}
		return 0
	})
	return names
}

// levelJSON is what doctor found out about a level.
type levelJSON struct {
	Name          string                               `json:"name"`
	Default       bool                                 `json:"default,omitempty"`
	Usable        bool                                 `json:"usable"`
	Problem       string                               `json:"problem,omitempty"`
	Remedy        string                               `json:"remedy,omitempty"`
	Engine        string                               `json:"engine,omitempty"`
	EngineAgeDays *int                                 `json:"engine_age_days,omitempty"`
	Limits        map[sandbox.LimitName]sandbox.Clause `json:"limits,omitempty"`
	Root          bool                                 `json:"root"`
	Terminal      bool                                 `json:"terminal"`
	CopyOnWrite   bool                                 `json:"copy_on_write"`
	ReadWrite     bool                                 `json:"read_write"`
	Masks         bool                                 `json:"masks"`
	Notes         []string                             `json:"notes,omitempty"`
}

func examined(name string, caps sandbox.Capabilities, now time.Time) levelJSON {
	l := levelJSON{
		Name: name, Default: name == policy.DefaultIsolation, Usable: caps.Unusable == "", Problem: caps.Unusable, Remedy: caps.Remedy,
		Engine: caps.Engine, Root: caps.Root, Terminal: caps.Terminal, CopyOnWrite: caps.CopyOnWrite, ReadWrite: caps.ReadWrite,
		Masks: caps.Masks, Notes: caps.Notes,
	}
	if !caps.EngineDate.IsZero() {
		days := max(0, int(now.Sub(caps.EngineDate)/(24*time.Hour)))
		l.EngineAgeDays = &days
	}
	if l.Usable {
		l.Limits = map[sandbox.LimitName]sandbox.Clause{}
		for _, n := range sandbox.LimitNames() {
			l.Limits[n] = session.Clause(caps, n)
		}
	}
	return l
}

func (a *app) printDoctor(levels []levelJSON) {
	if len(levels) == 0 {
		fmt.Fprintln(a.out, "This build runs no sandboxes on this system; caisson run needs Linux (amd64 or arm64).")
		fmt.Fprintln(a.out, "  fix: run caisson on a Linux host, or in a Linux virtual machine")
	}
	for _, l := range levels {
		word := "works"
		if !l.Usable {
			word = "does not work here: " + l.Problem
		}
		fmt.Fprintf(a.out, "%s %s\n", l.Name, word)
		if l.Remedy != "" {
			fmt.Fprintf(a.out, "  fix: %s\n", l.Remedy)
		}
		if l.Engine != "" {
			fmt.Fprintf(a.out, "  engine: %s", l.Engine)
			if l.EngineAgeDays != nil {
				fmt.Fprintf(a.out, " (%d days old)", *l.EngineAgeDays)
			}
			fmt.Fprintln(a.out)
		}
		for _, n := range sandbox.LimitNames() {
			if c, ok := l.Limits[n]; ok {
				a.printClause(n, c)
			}
		}
		for _, x := range []struct {
			what string
			has  bool
		}{{"--root (it would be root of this host's kernel; gvisor has one of its own)", l.Root}, {"terminal", l.Terminal}, {"copy-on-write mounts", l.CopyOnWrite}, {"read-write mounts", l.ReadWrite}, {"hidden paths", l.Masks}} {
			if l.Usable && !x.has {
				fmt.Fprintf(a.out, "  missing: %s\n", x.what)
			}
		}
		for _, n := range l.Notes {
			fmt.Fprintf(a.out, "  note: %s\n", n)
		}
	}
}

func (a *app) printClause(n sandbox.LimitName, c sandbox.Clause) {
	fmt.Fprintf(a.out, "  %-11s %s", n, c.Enforcement)
	if c.Detail != "" {
		fmt.Fprintf(a.out, ": %s", c.Detail)
	}
	fmt.Fprintln(a.out)
	if c.Remedy != "" {
		fmt.Fprintf(a.out, "  %11s fix: %s\n", "", c.Remedy)
	}
}
