// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/policy/shell"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/tool/params"
)

// policyRows are about what is decided before anything starts, in this process.
func policyRows() []bench {
	return []bench{
		{"policy.Decide of a call: schema, three rules, a rate", decided("≤ 200 µs", `{"to":"a@company.com","body":"Hello there","n":3}`, `
tools:
  - name: send_email
    params: {type: object, properties: {to: {type: string, format: email}, body: {type: string}, n: {type: integer}}, required: [to], additionalProperties: false}
    rules: ['email.domain(params.to) == "company.com"', "!has(params.n) || params.n < 10", "params.body.size() < 10000"]
    rate: 10/min
`)},
		{"policy.Decide of a call with 1000 rules", decided("≤ 2 ms", `{"to":"a@company.com","n":3}`, thousandRules())},
		{"a line of shell read: cd src && git diff --stat HEAD~1 | head -20", analysed("cd src && git diff --stat HEAD~1 | head -20")},
		{"10 000 commands of shell read", analysed(strings.Repeat("go test ./... && ", 7000) + "make\n" + strings.Repeat("ls -la\n", 1000))},
		{"shell with quotes, loops, variables and redirects read", analysed(strings.Repeat(`for f in *.go; do gofmt -l "$f" >> out.txt 2>&1 || echo 'bad: '"$f"; done
git log --oneline -n 5 | awk '{print $1}' | sort -u > "$HOME/list"; x=$(date +%s)
`, 60))},
	}
}

func thousandRules() string {
	var b strings.Builder
	b.WriteString("\ntools:\n  - name: send_email\n    params: {type: object, properties: {to: {type: string}, n: {type: integer}}, additionalProperties: false}\n    rules:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "      - params.n != %d\n", i+10)
	}
	return b.String()
}

const decisions = 2000

// decided decides a call of send_email again and again, from its text to the verdict.
func decided(goal, args, file string) func(context.Context) row {
	return func(context.Context) row {
		f, err := policy.Parse("bench.yaml", []byte("version: 1"+file))
		if err != nil {
			return row{notes: []string{err.Error()}}
		}
		p, err := policy.New(policy.Options{File: f, Defaults: persistent.LivingLimits()})
		if err != nil {
			return row{notes: []string{err.Error()}}
		}
		var times []time.Duration
		for i := range decisions + decisions/10 {
			began := time.Now()
			v, err := params.Read([]byte(args))
			if err != nil {
				return row{notes: []string{err.Error()}}
			}
			if v := p.Decide(&policy.Call{Kind: policy.CallTool, Actor: "key:bench", Tool: &policy.ToolCall{Name: "send_email", Args: v}}); v.Decision != policy.Allow {
				return row{notes: []string{v.Reason}}
			}
			if i >= decisions/10 { // rules are compiled by the first
				times = append(times, time.Since(began))
			}
		}
		return row{ours: fmt.Sprintf("%.0f µs", float64(median(times))/1e3), theirs: "none", goal: goal, runs: strconv.Itoa(len(times)), notes: []string{"from the text of the arguments to the verdict; counting against the rate is the store's, and not in it"}}
	}
}

const analyses = 400

// analysed reads a line again and again.
func analysed(line string) func(context.Context) row {
	return func(context.Context) row {
		if s := shell.Line(line, shell.Bash); len(s.Refusals) > 0 {
			return row{notes: []string{s.Refusals[0].Why}}
		}
		var times []time.Duration
		for range analyses {
			began := time.Now()
			shell.Line(line, shell.Bash)
			times = append(times, time.Since(began))
		}
		m := median(times)
		return row{ours: fmt.Sprintf("%.1f MB/s", float64(len(line))/1e6/m.Seconds()), theirs: "none", goal: "≥ 5 MB/s", runs: strconv.Itoa(len(times)), notes: []string{fmt.Sprintf("%d bytes in %v", len(line), m.Round(time.Microsecond/10))}}
	}
}
