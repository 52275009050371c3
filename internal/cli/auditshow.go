// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// printDetail is one call for people; --json has all of it.
func (a *app) printDetail(d *audit.Detail) {
	a.printRow("call", d.ID)
	a.printRow("began", d.Time.Local().Format("2006-01-02 15:04:05.000 -0700"))
	a.printRow("status", string(d.Status))
	if d.Call != nil {
		a.printCall(d.Call, d.Command)
	}
	if d.Ending != nil {
		a.printEnding(d.Ending)
	}
	a.printRow("record", fmt.Sprintf("%d %s", d.Seq, d.Digest))
	if d.EndSeq != 0 {
		a.printRow("record", fmt.Sprintf("%d %s", d.EndSeq, d.EndDigest))
	}
	a.printConnections(d)
	call, ending := cmp.Or(d.Call, &audit.Call{}), cmp.Or(d.Ending, &audit.Ending{})
	a.printPart("params", call.Params, d.Params)
	a.printPart("code", call.Code, d.Code)
	a.printPart("stdout", ending.Stdout, d.Stdout)
	a.printPart("stderr", ending.Stderr, d.Stderr)
}

// printRow is nothing where there is nothing to say.
func (a *app) printRow(name string, values ...string) {
	for _, v := range values {
		if v != "" {
			fmt.Fprintf(a.out, "%-10s %s\n", name, printable(v))
		}
	}
}

func (a *app) printCall(c *audit.Call, command []string) {
	a.printRow("asked by", c.Actor)
	a.printRow("what", c.Kind)
	a.printRow("tool", c.Tool)
	a.printRow("command", typed(command))
	a.printRow("directory", c.Dir)
	a.printRow("user", c.User)
	a.printRow("sandbox", c.Sandbox)
	a.printRow("isolation", c.Isolation)
	a.printRow("image", c.Image)
	a.printRow("network", c.Network)
	for _, m := range c.Mounts {
		a.printRow("mount", m.Name+" at "+cmp.Or(m.Target, "the working directory")+" ("+m.Access+gitOf(m)+")")
	}
	a.printRow("variables", strings.Join(c.Env, " "))
	a.printRow("secrets", strings.Join(c.Secrets, " "))
	for _, k := range slices.Sorted(maps.Keys(c.Labels)) {
		a.printRow("label", k+"="+c.Labels[k])
	}
	a.printRow("limits", limitsLine(c.Limits))
	a.printRow("policy", strings.TrimSpace(c.Policy+" "+c.PolicySHA))
	a.printRow("overridden", c.Overrides...)
	if p := c.Approval; p != nil {
		a.printRow("approval", strings.Join(slices.DeleteFunc([]string{p.ID, p.Digest, p.State, p.Approver, p.Channel, p.Note}, func(s string) bool { return s == "" }), ", "))
		a.printRow("asked for", p.Rules...)
	}
}

// limitsLine has sizes as people write them; records have all numbers whole.
func limitsLine(limits map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		text := limits[name]
		switch n, err := strconv.ParseInt(text, 10, 64); sandbox.LimitName(name) {
		case sandbox.LimitMemory, sandbox.LimitDisk, sandbox.LimitTmp, sandbox.LimitOutput, sandbox.LimitFileSize, sandbox.LimitIO:
			if err == nil {
				text = session.Size(n)
			}
		}
		parts = append(parts, name+" "+text)
	}
	return strings.Join(parts, ", ")
}

func (a *app) printEnding(e *audit.Ending) {
	r := e.Result
	if r == nil || r.Reason != e.Error {
		a.printRow("error", e.Error)
	}
	if r == nil {
		return
	}
	end := strings.TrimSpace(string(r.Status) + " " + string(r.Resource))
	switch {
	case r.ExitCode != nil:
		end += ", exit code " + strconv.Itoa(*r.ExitCode)
	case r.Signal != "":
		end += ", ended by " + r.Signal
	}
	a.printRow("result", end)
	a.printRow("reason", r.Reason)
	a.printRow("rule", r.Rule)
	a.printRow("hint", r.Hint)
	if r.Posture.Isolation != "" { // something ran
		a.printRow("took", usedLine(r))
		a.printRow("held", heldLine(r.Posture.Limits))
	}
	for _, f := range r.Findings {
		text := f.Problem
		if toInspect(f) {
			text = sandbox.Quoted(f.Text) + ": " + text
		}
		a.printRow("finding", fmt.Sprintf("%s: %s (%s)", f.Action, text, f.Rule))
	}
	for _, f := range r.Files {
		a.printRow("saved", fmt.Sprintf("%s as %s, %s, sha256:%s", f.Path, f.SavedAs, session.Size(f.Size), f.SHA256))
	}
	if e.FilesOmitted > 0 {
		a.printRow("saved", fmt.Sprintf("%d more", e.FilesOmitted))
	}
	for _, u := range r.Uncollected {
		a.printRow("not saved", u.Pattern+": "+u.Reason)
	}
}

// heldLine says which limits held; those that are all enforced need no list.
func heldLine(limits map[sandbox.LimitName]sandbox.Enforcement) string {
	var weaker []string
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if limits[name] != sandbox.Enforced {
			weaker = append(weaker, fmt.Sprintf("%s %s", name, limits[name]))
		}
	}
	switch {
	case len(limits) == 0:
		return ""
	case len(weaker) == 0:
		return "all limits enforced"
	}
	return strings.Join(weaker, ", ") + "; all other limits enforced"
}

func (a *app) printConnections(d *audit.Detail) {
	if len(d.Connections) > 0 {
		fmt.Fprintln(a.out, "--- connections")
	}
	for _, c := range d.Connections {
		fmt.Fprintf(a.out, "%-8s %s\n", c.Status, printable(passage(c.Call.Connection)))
	}
	if d.MoreConnections {
		fmt.Fprintf(a.out, "and more: caisson audit ls --of %s --limit 0\n", d.ID)
	}
}

// printPart is content, under its digest, by which it can be redacted.
func (a *app) printPart(name string, c *audit.Content, text []byte) {
	if len(text) == 0 {
		return
	}
	title := name
	if c != nil {
		title += " (" + session.Size(c.Size) + ", sha256 " + c.SHA256
		if c.Kept != "" {
			title += ", of which the beginning is kept: " + c.Kept
		}
		title += ")"
	}
	fmt.Fprintf(a.out, "--- %s\n", title)
	// It was written by untrusted code.
	to, finish := a.output(a.out.file, &runFlags{})
	_, err := to.Write(text)
	a.out.note(err)
	finish()
	if !bytes.HasSuffix(text, []byte("\n")) {
		fmt.Fprintln(a.out)
	}
}

// usedLine is what a program used.
func usedLine(r *sandbox.Result) string {
	parts := []string{fmt.Sprintf("wall %s", time.Duration(r.WallMS)*time.Millisecond)}
	if r.CPUMS != nil {
		parts = append(parts, fmt.Sprintf("cpu %s", time.Duration(*r.CPUMS)*time.Millisecond))
	}
	if r.MemoryPeakBytes != nil {
		parts = append(parts, "memory peak "+session.Size(*r.MemoryPeakBytes))
	}
	return strings.Join(parts, ", ")
}

func (a *app) auditShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [ID]",
		Short: "Show one call, the last one without an id, with its connections and what is kept of its code and output",
		Example: `  caisson audit show
  caisson audit show --json aud_abc`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(cmd, "it takes one id", "caisson audit ls lists them; the beginning of an id is enough")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLog(contextOf(cmd), false, func(log *audit.Log) error {
				id, err := callNamed(contextOf(cmd), log, args)
				if err != nil {
					return err
				}
				d, err := log.Show(contextOf(cmd), id)
				if err != nil {
					return err
				}
				if asJSON {
					a.printJSON(d)
					return nil
				}
				a.printDetail(d)
				return nil
			})
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// callNamed is the ID in args, or that of the last call: what a connection did is
// shown with its call.
func callNamed(ctx context.Context, log *audit.Log, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	for r, err := range log.Query(ctx, audit.Filter{}) {
		if err != nil {
			return "", err
		}
		if r.Call == nil || r.Call.Connection == nil {
			return r.ID, nil
		}
	}
	return "", &sandbox.Error{Op: "audit show", Kind: sandbox.ErrNotFound, Problem: "there is no call yet"}
}

// gitOf says what a record says of the repositories in a mount.
func gitOf(m audit.Mount) string {
	if m.Git == "" {
		return ""
	}
	return ", git " + m.Git
}
