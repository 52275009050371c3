// SPDX-License-Identifier: Apache-2.0

package template

import (
	"bytes"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/command"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/caisson-run/caisson/sandbox"
)

// ParseDockerfile reads a Dockerfile as docker build does; the name appears in messages.
// What it cannot carry is an error with its line, never left out. Accepted without an
// effect are STOPSIGNAL (sandboxes are killed), --link of COPY and ADD (how a cache is
// kept), and the times of HEALTHCHECK. VOLUME makes its directories: what is in a sandbox
// is its own anyway. MAINTAINER is a label.
//
// Errors are *sandbox.Error: ErrUnsupported for what docker knows and this does not,
// ErrInvalid for the rest. The Op is name:line.
func ParseDockerfile(name string, src []byte, o Options) (d *Definition, err error) {
	// A fault of the library must not take the program down.
	defer func() {
		if p := recover(); p != nil {
			d, err = nil, fault(sandbox.ErrInvalid, name, 1, "report this with the file", "reading it failed: %v", p)
		}
	}()
	if line, problem, hint := checkText(src); line > 0 {
		return nil, fault(sandbox.ErrInvalid, name, line, hint, "%s", problem)
	}
	if line := checkNesting(src); line > 0 {
		return nil, fault(sandbox.ErrInvalid, name, line, "close the braces", "more than %d ${ are open here", maxNested)
	}
	parsed, err := parser.Parse(bytes.NewReader(src))
	if err != nil {
		return nil, place(err, name, 1)
	}
	nodes := parsed.AST.Children
	if len(nodes) > maxSteps {
		return nil, fault(sandbox.ErrInvalid, name, nodes[maxSteps].StartLine, "join RUN lines with &&", "it has more than %d instructions", maxSteps)
	}
	f := newDockerfile(o, parsed.EscapeToken)
	for _, n := range nodes {
		if err := f.instruction(n); err != nil {
			return nil, place(err, name, n.StartLine)
		}
	}
	if len(f.stages) == 0 {
		return nil, fault(sandbox.ErrInvalid, name, 1, "begin with FROM debian or another image", "it has no FROM")
	}
	d = &Definition{Stages: needed(f.stages), Config: f.config}
	return d.checked(name)
}

// dockerfile is what has been read so far. The stage is the last of stages.
type dockerfile struct {
	Options
	expander expander
	global   variables // what ARG before the first FROM, and docker itself, define
	stages   []Stage
	configs  []Config // of the stages, where they end

	config Config    // of the stage
	env    variables // that its steps see: config.Env with the arguments
	cmdSet bool      // CMD was in this stage: an ENTRYPOINT does not drop it
}

func newDockerfile(o Options, escape rune) *dockerfile {
	f := &dockerfile{Options: o, expander: expander{escape: escape}}
	if f.Arch == "" {
		f.Arch = runtime.GOARCH
	}
	for _, of := range []string{"TARGET", "BUILD"} {
		f.global = append(f.global, of+"PLATFORM=linux/"+f.Arch, of+"OS=linux", of+"ARCH="+f.Arch, of+"VARIANT=")
	}
	return f
}

// place gives an error its line and its kind.
func place(err error, name string, line int) error {
	var at *parser.LocationError
	if errors.As(err, &at) && len(at.Locations) > 0 && len(at.Locations[0]) > 0 {
		line = max(at.Locations[0][0].Start.Line, 1)
	}
	if e := (*sandbox.Error)(nil); errors.As(err, &e) {
		return fault(e.Kind, name, line, e.Hint, "%s", e.Problem)
	}
	return fault(sandbox.ErrInvalid, name, line, "", "%s", oneLine(err.Error()))
}

// notCarried refuses what docker knows.
func notCarried(hint, format string, args ...any) error {
	e := invalid(hint, format+" is not carried", args...)
	e.Kind = sandbox.ErrUnsupported
	return e
}

// instruction carries one out on the state.
func (f *dockerfile) instruction(n *parser.Node) error {
	if err := refused(n); err != nil {
		return err
	}
	parsed, err := instructions.ParseInstruction(n)
	if err != nil {
		return err
	}
	if stage, ok := parsed.(*instructions.Stage); ok {
		return f.from(stage, n.StartLine)
	}
	arg, isArg := parsed.(*instructions.ArgCommand)
	switch {
	case isArg && len(f.stages) == 0:
		return f.globalArg(arg)
	case isArg:
		return f.arg(arg)
	case len(f.stages) == 0:
		return invalid("only ARG can stand before FROM", "%s stands before the first FROM", strings.ToUpper(n.Value))
	}
	if err := f.expand(parsed); err != nil {
		return err
	}
	return f.carryOut(parsed, n)
}

// refused are instructions and flags that are named before anything else is said of them.
func refused(n *parser.Node) error {
	switch strings.ToLower(n.Value) {
	case command.Onbuild:
		return notCarried("write the instruction into the Dockerfile that builds on this one", "ONBUILD")
	case command.Run:
		for _, flag := range n.Flags {
			switch flag, _, _ := strings.Cut(flag, "="); flag {
			case "--mount":
				return notCarried("drop it, and COPY what the step reads; a step whose input is the same is not run again", "RUN --mount")
			case "--network":
				return notCarried("drop it, and give the build the hosts that it may reach", "RUN --network")
			case "--security", "--device":
				return notCarried("drop it: a step has what a sandbox has", "RUN %s", flag)
			}
		}
	case command.Copy, command.Add:
		for _, flag := range n.Flags {
			switch flag, _, _ := strings.Cut(flag, "="); flag {
			case "--exclude":
				return notCarried("name the files in .dockerignore", "%s", flag)
			case "--parents":
				return notCarried("COPY each directory to its place", "%s", flag)
			case "--checksum", "--keep-git-dir":
				return notCarried("fetch the file in a RUN", "ADD %s", flag)
			}
		}
	}
	return nil
}

// expand replaces variables where docker does.
func (f *dockerfile) expand(parsed any) error {
	if x, ok := parsed.(instructions.SupportsSingleWordExpansion); ok {
		if err := x.Expand(func(w string) (string, error) { return f.expander.word(w, f.env) }); err != nil {
			return err
		}
	}
	if x, ok := parsed.(instructions.SupportsSingleWordExpansionRaw); ok {
		return x.ExpandRaw(func(w string) (string, error) { return f.expander.raw(w, f.env) })
	}
	return nil
}

// globalArg is an ARG before the first FROM: FROM lines see it, and stages that ask for it.
func (f *dockerfile) globalArg(c *instructions.ArgCommand) error {
	for _, a := range c.Args {
		value, set := f.Args[a.Key]
		if !set && a.Value != nil {
			var err error
			if value, err = f.expander.word(*a.Value, f.global); err != nil {
				return err
			}
			set = true
		}
		if set {
			var err error
			if f.global, err = f.global.set(a.Key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// arg is an ARG of a stage. It takes the value of the caller, its own, or that of the ARG
// before the first FROM.
func (f *dockerfile) arg(c *instructions.ArgCommand) error {
	for _, a := range c.Args {
		value, set := f.Args[a.Key]
		if !set && a.Value != nil {
			var err error
			if value, err = f.expander.word(*a.Value, f.env); err != nil {
				return err
			}
			set = true
		}
		if !set && slices.Contains(f.global.Keys(), a.Key) {
			value, _ = f.global.Get(a.Key)
			set = true
		}
		if set {
			var err error
			if f.env, err = f.env.set(a.Key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// needed are the stages that the last one is made from, and itself.
func needed(stages []Stage) []Stage {
	need := make([]bool, len(stages))
	need[len(stages)-1] = true
	for i, s := range slices.Backward(stages) {
		if !need[i] {
			continue
		}
		if s.From.Kind == Earlier {
			need[s.From.Stage] = true
		}
		for _, step := range s.Steps {
			if step.Copy != nil && step.Copy.From >= 0 {
				need[step.Copy.From] = true
			}
		}
	}
	var out []Stage
	at := map[int]int{}
	for i, s := range stages {
		if !need[i] {
			continue
		}
		at[i] = len(out)
		if s.From.Kind == Earlier {
			s.From.Stage = at[s.From.Stage]
		}
		for j := range s.Steps {
			if c := s.Steps[j].Copy; c != nil && c.From >= 0 {
				c.From = at[c.From]
			}
		}
		out = append(out, s)
	}
	return out
}

// clone is a copy that can be changed.
func (c Config) clone() Config {
	c.Env, c.Ports, c.Labels = slices.Clone(c.Env), slices.Clone(c.Ports), maps.Clone(c.Labels)
	return c
}
