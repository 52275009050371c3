// SPDX-License-Identifier: Apache-2.0

//go:build linux

package attack_test

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/attack"
	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/mcp"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/operation"
	"github.com/caisson-run/caisson/session/registry"
)

// The policy with something out. Each turns exactly the cases red that are about it.

// unjudged is an Office that lets lines through that a hole takes, whatever the
// list says.
func unjudged(t *testing.T, hole func(line string) bool) func(*session.Options, *attack.Office) {
	return func(o *session.Options, office *attack.Office) {
		judged, err := session.New(*o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(o.PolicyName)
		if err != nil {
			t.Fatal(err)
		}
		free := *o
		free.Policy = policyOf(t, o.PolicyName, regexp.MustCompile(`(?m)^commands:.*$`).ReplaceAll(text, nil))
		open, err := session.New(free)
		if err != nil {
			t.Fatal(err)
		}
		office.Caller = holey{judged, open, hole}
	}
}

type holey struct {
	judged, open *session.Session
	hole         func(line string) bool
}

func (h holey) Do(ctx context.Context, c *session.Call, io session.IO) (*sandbox.Result, error) {
	if h.hole(lineOf(c.Argv)) {
		return h.open.Do(ctx, c, io)
	}
	return h.judged.Do(ctx, c, io)
}

func (h holey) CallTool(ctx context.Context, c *session.ToolCall) (*session.ToolAnswer, error) {
	var args struct{ Code string }
	if json.Unmarshal(c.Args, &args) == nil && h.hole(args.Code) {
		return h.open.CallTool(ctx, c)
	}
	return h.judged.CallTool(ctx, c)
}

// lineOf is what a shell is told, or an argv in a line.
func lineOf(argv []string) string {
	if len(argv) == 3 && argv[1] == "-c" {
		return argv[2]
	}
	return strings.Join(argv, " ")
}

func policyOf(t *testing.T, name string, text []byte) *policy.Policy {
	t.Helper()
	f, err := policy.Parse(name, text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p, err := policy.New(policy.Options{File: f})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rewritten is an Office whose policy says something else.
func rewritten(t *testing.T, from, to string) func(*session.Options, *attack.Office) {
	return func(o *session.Options, _ *attack.Office) {
		text, err := os.ReadFile(o.PolicyName)
		if err != nil {
			t.Fatal(err)
		}
		o.Policy = policyOf(t, o.PolicyName, []byte(strings.ReplaceAll(string(text), from, to)))
	}
}

// The lines that a careless judge would take.
var (
	listed   = []string{"cat", "echo", "env", "find", "git", "ls", "mkdir", "nice", "sed", "setsid", "sort", "tar", "timeout", "true", "xargs"}
	compound = regexp.MustCompile("[;|&\n`()<]")
	starters = regexp.MustCompile(`^(env|nice|timeout|setsid|find|tar|sed|git|sh -c|bash -c|echo \S+ \| xargs)\b`)
	steering = regexp.MustCompile(`^([A-Z]\w+=|export |declare |typeset |printf -v|read |mapfile |hash |shopt |ls\(\))`)
	spelled  = regexp.MustCompile("^([^ (=]*[\"'\\\\?]|\\$[({']|\\$x|\\{touch|touch\\$|a=|x=|set -- )")
)

// first is the first word of a line, and the last part of that if it is a path.
func first(line string) (word, base string) {
	word, _, _ = strings.Cut(line, " ")
	return word, word[strings.LastIndexByte(word, '/')+1:]
}

// repairs is an Office that takes arguments as some readers of JSON do: the last
// of two that are named the same, and nothing of what it does not know.
type repairs struct{ attack.Caller }

func (r repairs) CallTool(ctx context.Context, c *session.ToolCall) (*session.ToolAnswer, error) {
	var all map[string]any
	if c.Name == "mark" && json.Unmarshal(c.Args, &all) == nil {
		known := map[string]any{}
		for _, name := range []string{"name", "n"} {
			if v, ok := all[name]; ok {
				known[name] = v
			}
		}
		c.Args, _ = json.Marshal(known)
	}
	return r.Caller.CallTool(ctx, c)
}

// believes takes everybody for the owner of this host.
type believes struct{ attack.Caller }

func (b believes) Do(ctx context.Context, c *session.Call, io session.IO) (*sandbox.Result, error) {
	c.Operator = true
	return b.Caller.Do(ctx, c, io)
}

// uncounted lets a rate pass.
type uncounted struct{}

func (uncounted) Take(context.Context, registry.Instant, []registry.Rate) (int, time.Duration, error) {
	return -1, 0, nil
}

// lenient runs what it cannot record.
type lenient struct {
	operation.Journal
	spare *audit.Log
}

func (l lenient) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	if e, err := l.Journal.Begin(ctx, in); err == nil {
		return e, nil
	}
	return l.spare.Begin(ctx, in)
}

// forgetful has what was approved of servers forgotten before each call.
type forgetful struct {
	operation.Journal
	pins *mcp.Pins
}

func (f forgetful) Begin(ctx context.Context, in audit.Intent) (*audit.Entry, error) {
	_ = os.RemoveAll(f.pins.Dir)
	return f.Journal.Begin(ctx, in)
}

func calling(t *testing.T, wrap func(attack.Caller) attack.Caller) func(*session.Options, *attack.Office) {
	return func(o *session.Options, office *attack.Office) {
		s, err := session.New(*o)
		if err != nil {
			t.Fatal(err)
		}
		office.Caller = wrap(s)
	}
}

func TestWithWeakerPolicy(t *testing.T) {
	spare, err := audit.Open(t.Context(), audit.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer spare.Close()
	const shell, calls = "P01 P02 P03 P04 P05 P06", "P07 P08 P09 P10 P11"
	for name, c := range map[string]struct {
		office   func(*session.Options, *attack.Office)
		red, all string
	}{
		"no list": {unjudged(t, func(string) bool { return true }), shell, shell},
		"the first word of a line": {unjudged(t, func(line string) bool {
			word, _ := first(line)
			return compound.MatchString(line) && slices.Contains(listed, strings.TrimRight(word, ";\n")) && !starters.MatchString(line)
		}), "P01 P02", shell},
		"fifty commands":               {unjudged(t, func(line string) bool { return strings.Count(line, ";") >= 50 }), "P02", shell},
		"what starts others":           {unjudged(t, starters.MatchString), "P03 P04 P06", shell}, // env sets, and goes elsewhere
		"what is set":                  {unjudged(t, steering.MatchString), "P04", shell},
		"names that are written oddly": {unjudged(t, func(line string) bool { return spelled.MatchString(line) && !strings.Contains(line, "$((") }), "P05", shell},
		"the last part of a path": {unjudged(t, func(line string) bool {
			word, base := first(line)
			return word != base && !compound.MatchString(line) && slices.Contains(listed, base)
		}), "P06", shell},
		"arguments that are repaired": {calling(t, func(c attack.Caller) attack.Caller { return repairs{c} }), "P07", calls},
		"nobody is asked":             {rewritten(t, "approve: always", "approve: never"), "P08", calls},
		"everybody is the owner":      {calling(t, func(c attack.Caller) attack.Caller { return believes{c} }), "P09", calls},
		"servers are not remembered":  {func(o *session.Options, office *attack.Office) { o.Journal = forgetful{o.Journal, office.Pins} }, "P10", calls},
		"nothing is counted":          {func(o *session.Options, _ *attack.Office) { o.Rates = uncounted{} }, "P11", calls},
		"what cannot be recorded":     {func(o *session.Options, _ *attack.Office) { o.Journal = lenient{o.Journal, spare} }, "P12", "P11 P12"},
		"what is marked":              {rewritten(t, "redact: [key]", ""), "P12", "P11 P12"},
		"a policy from nowhere":       {rewritten(t, "", ""), "F23", "F23"}, // it is known by its text alone
	} {
		t.Run(name, func(t *testing.T) {
			l := attacktest.Level{Driver: caisson.Drivers()["process"], Office: c.office}
			wantRed(t, attacktest.Run(t, l, strings.Fields(c.all)...), c.red)
		})
	}
}
