// SPDX-License-Identifier: Apache-2.0

package template

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"mvdan.cc/sh/v3/syntax"

	"github.com/caisson-run/caisson/sandbox"
)

// carryOut changes the state, or adds a step to the stage.
func (f *dockerfile) carryOut(parsed any, n *parser.Node) (err error) {
	switch c := parsed.(type) {
	case *instructions.RunCommand:
		return f.run(c, n)
	case *instructions.CopyCommand:
		return f.copy(c, n)
	case *instructions.AddCommand:
		return f.add(c, n)
	case *instructions.EnvCommand:
		for _, kv := range c.Env {
			if err := f.setEnv(kv.Key, kv.Value); err != nil {
				return err
			}
		}
	case *instructions.WorkdirCommand:
		f.config.Dir = path.Join("/", f.config.Dir, c.Path)
		if path.IsAbs(c.Path) {
			f.config.Dir = path.Clean(c.Path)
		}
		if f.config.Dir != "/" {
			f.step(n, Step{MakeDir: f.config.Dir})
		}
	case *instructions.VolumeCommand:
		for _, dir := range c.Volumes {
			f.step(n, Step{MakeDir: path.Join("/", dir), User: "root"})
		}
	case *instructions.UserCommand:
		if err := checkUser(c.User); err != nil {
			return err
		}
		f.config.User = c.User
	case *instructions.ShellCommand:
		f.config.Shell = c.Shell
	case *instructions.EntrypointCommand:
		f.config.Entrypoint = f.program(c.ShellDependantCmdLine)
		if !f.cmdSet {
			f.config.Cmd = nil // it was written for the base's
		}
	case *instructions.CmdCommand:
		f.config.Cmd, f.cmdSet = f.program(c.ShellDependantCmdLine), true
	case *instructions.ExposeCommand:
		return f.expose(c.Ports)
	case *instructions.LabelCommand:
		for _, kv := range c.Labels {
			if err := f.label(kv.Key, kv.Value); err != nil {
				return err
			}
		}
	case *instructions.MaintainerCommand:
		return f.label("maintainer", c.Maintainer)
	case *instructions.HealthCheckCommand:
		f.config.Ready = f.ready(c.Health.Test)
	case *instructions.StopSignalCommand:
	default:
		return notCarried("", "%s", strings.ToUpper(n.Value))
	}
	return nil
}

// step adds one, with what holds for it.
func (f *dockerfile) step(n *parser.Node, s Step) {
	text := n.Original
	if len(n.Heredocs) > 0 {
		text += " (" + strings.TrimSpace(sandbox.Clip(n.Heredocs[0].Content, maxText)) + ")"
	}
	s.Text = strings.ToUpper(n.Value) + strings.TrimPrefix(oneLine(text), n.Value)
	s.Line, s.Env, s.Dir, s.User = n.StartLine, f.env, f.config.Dir, or(s.User, f.config.User)
	stage := &f.stages[len(f.stages)-1]
	stage.Steps = append(stage.Steps, s)
}

// setEnv is an ENV: steps see it, and sandboxes.
func (f *dockerfile) setEnv(name, value string) (err error) {
	if f.env, err = f.env.set(name, value); err != nil {
		return err
	}
	f.config.Env, err = variables(f.config.Env).set(name, value)
	return err
}

// shell hands a line to the stage's shell.
func (f *dockerfile) shell(line string) []string {
	if len(f.config.Shell) == 0 {
		return []string{"/bin/sh", "-c", line}
	}
	return append(slices.Clone(f.config.Shell), line)
}

// program is what ENTRYPOINT and CMD name; an empty one is none.
func (f *dockerfile) program(c instructions.ShellDependantCmdLine) []string {
	if c.PrependShell && len(c.CmdLine) > 0 {
		return f.shell(c.CmdLine[0])
	}
	return slices.Clip(c.CmdLine)
}

// ready is the readiness that a HEALTHCHECK says.
func (f *dockerfile) ready(test []string) string {
	switch {
	case test[0] == "NONE":
		return ""
	case test[0] == "CMD-SHELL" && len(f.config.Shell) == 0:
		return test[1]
	case test[0] == "CMD-SHELL":
		return quoted(f.shell(test[1]))
	}
	return quoted(test[1:])
}

// quoted is a line of shell that runs a program.
func quoted(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		q, err := syntax.Quote(w, syntax.LangPOSIX)
		if err != nil { // it holds what no quoting of POSIX says
			q = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		words[i] = q
	}
	return strings.Join(words, " ")
}

func (f *dockerfile) label(name, value string) error {
	if len(name) > 1000 || len(value) > maxValue || len(f.config.Labels) >= maxNames {
		return invalid("keep fewer and shorter ones", "label %s is too long, or one too many", quote(name))
	}
	if f.config.Labels == nil {
		f.config.Labels = map[string]string{}
	}
	f.config.Labels[name] = value
	return nil
}

// expose notes ports.
func (f *dockerfile) expose(texts []string) error {
	for _, text := range texts {
		ports, err := f.expander.words(text, f.env)
		if err != nil {
			return err
		}
		for _, p := range ports {
			if p, err = checkPort(p); err != nil {
				return err
			}
			if len(f.config.Ports) < maxNames && !slices.Contains(f.config.Ports, p) {
				f.config.Ports = append(f.config.Ports, p)
			}
		}
	}
	return nil
}

// checkPort reads 80, 80/tcp or 8000-8010/udp, and says the protocol.
func checkPort(s string) (string, error) {
	numbers, protocol, ok := strings.Cut(s, "/")
	if !ok {
		protocol = "tcp"
	}
	protocol = strings.ToLower(protocol)
	low, high, isRange := strings.Cut(numbers, "-")
	if !isRange {
		high = low
	}
	a, err1 := strconv.ParseUint(low, 10, 16)
	b, err2 := strconv.ParseUint(high, 10, 16)
	if err1 != nil || err2 != nil || a == 0 || b < a || !slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) {
		return "", invalid("write 80, 80/udp or 8000-8010", "%s is no port", quote(s))
	}
	return numbers + "/" + protocol, nil
}

// checkUser refuses what can be no user; whether there is one the tree says.
func checkUser(s string) error {
	name, group, grouped := strings.Cut(s, ":")
	bad := func(w string) bool {
		return w == "" || len(w) > 256 || w[0] == '-' || strings.ContainsAny(w, ":/ \t\r\n\x00")
	}
	if bad(name) || grouped && bad(group) {
		return invalid("write NAME, UID, NAME:GROUP or UID:GID", "%s is no user", quote(s))
	}
	return nil
}
