// SPDX-License-Identifier: Apache-2.0

package template

import (
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// RawStep is a step as E2B's clients send it.
type RawStep struct {
	// Type is COPY, RUN, ENV, WORKDIR or USER.
	Type string `json:"type"`
	// Args are [source, target, user, mode] of COPY, where the last two may be empty or
	// missing; [command, user] of RUN, where user may be; name after value of ENV; one else.
	Args      []string `json:"args,omitempty"`
	FilesHash string   `json:"filesHash,omitempty"` // of COPY: which upload has the files
	Force     bool     `json:"force,omitempty"`     // carried out even where its result is known
}

// What steps of E2B's clients begin with, whatever the base says.
const (
	e2bUser = "user"
	e2bDir  = "/home/user"
)

// FromSteps makes a definition of what E2B's clients send. Steps run as the user "user" in
// /home/user until USER and WORKDIR say else, and so do sandboxes. A command is a line for
// a login bash. In values of ENV and in WORKDIR variables are replaced. Who calls sets
// Config.Start and Config.Ready.
//
// Errors are *sandbox.Error of kind ErrInvalid, whose Op is "step:" and the step, from 1.
func FromSteps(from Base, steps []RawStep, o Options) (*Definition, error) {
	s := &e2bSteps{config: o.base(from).clone(), expander: expander{escape: '\\'}}
	if len(steps) > maxSteps {
		return nil, fault(sandbox.ErrInvalid, "step", maxSteps+1, "build on a template that has the first of them", "there are more than %d steps", maxSteps)
	}
	env, err := baseEnv(s.config.Env)
	if err != nil {
		return nil, place(err, "step", 1)
	}
	s.env, s.config.User, s.config.Dir = env, e2bUser, e2bDir
	for i, raw := range steps {
		if err := s.read(raw, i+1); err != nil {
			return nil, place(err, "step", i+1)
		}
	}
	s.config.Env = s.env
	d := &Definition{Stages: []Stage{{From: from, Steps: s.steps}}, Config: s.config}
	return d.checked("step")
}

// StepOf is the step that an error of [FromSteps] is about, from 1; 0 where it is none of its.
func StepOf(err error) int {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return 0
	}
	text, _ := strings.CutPrefix(e.Op, "step:")
	n, _ := strconv.Atoi(text)
	return n
}

type e2bSteps struct {
	expander expander
	config   Config
	env      variables
	steps    []Step
}

// read carries one out on the state.
func (s *e2bSteps) read(raw RawStep, at int) (err error) {
	if err := checkArgs(raw); err != nil {
		return err
	}
	step := Step{Text: oneLine(raw.Type + " " + strings.Join(raw.Args, " ")), Line: at, NoCache: raw.Force}
	switch a := raw.Args; raw.Type {
	case "RUN":
		step.Argv = []string{"/bin/bash", "-l", "-c", a[0]}
		if len(a) > 1 && a[1] != "" {
			if err := checkUser(a[1]); err != nil {
				return err
			}
			step.User = a[1]
		}
	case "COPY":
		if step.Copy, err = s.copy(raw); err != nil {
			return err
		}
	case "ENV":
		for i := 0; i < len(a); i += 2 {
			value, err := s.value(a[i+1])
			if err == nil {
				s.env, err = s.env.set(a[i], value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	case "WORKDIR":
		dir, err := s.value(a[0])
		if err != nil {
			return err
		}
		if !path.IsAbs(dir) {
			dir = path.Join(s.config.Dir, dir)
		}
		s.config.Dir = path.Clean(dir)
		step.MakeDir = s.config.Dir
	case "USER":
		if err := checkUser(a[0]); err != nil {
			return err
		}
		s.config.User = a[0]
		return nil
	}
	step.Env, step.Dir, step.User = s.env, s.config.Dir, or(step.User, s.config.User)
	s.steps = append(s.steps, step)
	return nil
}

// checkArgs counts the arguments.
func checkArgs(raw RawStep) error {
	n := len(raw.Args)
	ok, want := false, ""
	switch raw.Type {
	case "RUN":
		ok, want = (n == 1 || n == 2) && raw.Args[0] != "", "a command and perhaps a user"
	case "COPY":
		ok, want = n >= 2 && n <= 4, "a source, a target and perhaps a user and a mode"
	case "ENV":
		ok, want = n > 0 && n%2 == 0, "names with their values"
	case "WORKDIR", "USER":
		ok, want = n == 1 && raw.Args[0] != "", "one argument"
	default:
		return invalid("known are COPY, RUN, ENV, WORKDIR and USER", "%s is no kind of step", quote(raw.Type))
	}
	if !ok {
		return invalid("send "+want, "%s has %d arguments", raw.Type, n)
	}
	return nil
}

// value replaces variables. What cannot be read as one stays as it is.
func (s *e2bSteps) value(text string) (string, error) {
	out, err := s.expander.raw(text, s.env)
	if e := (*sandbox.Error)(nil); errors.As(err, &e) {
		return "", err
	} else if err != nil {
		return text, nil
	}
	return out, nil
}

func (s *e2bSteps) copy(raw RawStep) (*Copy, error) {
	arg := func(i int) string {
		if i < len(raw.Args) {
			return raw.Args[i]
		}
		return ""
	}
	if !uploadHash.MatchString(raw.FilesHash) {
		return nil, invalid("send the hash that the files were uploaded as", "COPY has %s as filesHash", strconv.Quote(sandbox.Clip(raw.FilesHash, 80)))
	}
	src, err := checkSource(arg(0))
	if err != nil {
		return nil, err
	}
	c := &Copy{From: ContextDir, Upload: raw.FilesHash, Sources: []string{src}, Chown: or(arg(2), s.config.User), Chmod: arg(3)}
	return c, c.settle(arg(1), s.config.Dir)
}

var uploadHash = lazy(`^[0-9a-f]{16,128}$`)
