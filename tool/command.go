// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// Command is the argv of a declared command, with places for arguments: {name}
// is one value, within an element or as a whole one, and {name...} is an
// element for each value of a list. {{ and }} are the braces themselves. There is
// no shell: a value stays within its element, whatever is in it.
type Command struct {
	argv [][]piece
	text []string
}

// piece is a part of an element: a text, or the value of an argument.
type piece struct {
	text string
	name string // of an argument; empty for a text
	each bool   // an element for each value
}

// ParseCommand reads a template. Errors are ErrInvalid.
func ParseCommand(argv []string) (*Command, error) {
	refuse := func(hint, problem string) (*Command, error) {
		return nil, &sandbox.Error{Op: "command", Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
	}
	if len(argv) == 0 || argv[0] == "" {
		return refuse("write [PROGRAM, ARGUMENT, …]", "it names no program")
	}
	c := &Command{text: slices.Clone(argv)}
	for i, a := range argv {
		if strings.ContainsRune(a, 0) {
			return refuse("drop it", "an element has a NUL byte")
		}
		pieces, problem := cut(a)
		if problem != "" {
			return refuse("write {name} for an argument, {{ and }} for braces", problem)
		}
		if i == 0 && hasArgument(pieces) {
			return refuse("declare a tool for each program", "its first element is the program, which no argument chooses")
		}
		for _, p := range pieces {
			if p.each && len(pieces) > 1 {
				return refuse("make {"+p.name+"...} an element of its own", "a list stands within an element")
			}
		}
		c.argv = append(c.argv, pieces)
	}
	// What a shell or an interpreter reads as a program must not be an argument's
	// to write.
	if runsText(c.text[0]) && slices.ContainsFunc(c.argv, hasArgument) {
		return refuse("name the program itself; it needs no shell", path.Base(argv[0])+" would read arguments as a program")
	}
	return c, nil
}

func hasArgument(pieces []piece) bool {
	return slices.ContainsFunc(pieces, func(p piece) bool { return p.name != "" })
}

// runsText: programs that take a program, or a command line, from their arguments
// in so many ways that a template of theirs says nothing.
func runsText(program string) bool {
	return slices.Contains([]string{
		"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "busybox", "toybox", "env", "xargs", "sudo", "doas", "su", "eval", "exec",
		"nohup", "setsid", "timeout", "nice", "stdbuf", "chroot", "script", "watch", "parallel", "ssh",
	}, path.Base(program))
}

// cut takes an element apart.
func cut(s string) (out []piece, problem string) {
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			out = append(out, piece{text: text.String()})
			text.Reset()
		}
	}
	for s != "" {
		switch {
		case strings.HasPrefix(s, "{{"), strings.HasPrefix(s, "}}"):
			text.WriteByte(s[0])
			s = s[2:]
		case s[0] == '{':
			name, rest, ok := strings.Cut(s[1:], "}")
			name, each := strings.CutSuffix(name, "...")
			if !ok || !plainArgument(name) {
				return nil, "a { begins no argument's name"
			}
			flush()
			out = append(out, piece{name: name, each: each})
			s = rest
		case s[0] == '}':
			return nil, "a } ends nothing"
		default:
			text.WriteByte(s[0])
			s = s[1:]
		}
	}
	flush()
	return out, ""
}

func plainArgument(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// Arguments are the names of the arguments that the template has places for.
func (c *Command) Arguments() []string {
	var names []string
	for _, e := range c.argv {
		for _, p := range e {
			if p.name != "" && !slices.Contains(names, p.name) {
				names = append(names, p.name)
			}
		}
	}
	return names
}

// Template is the argv as it was written.
func (c *Command) Template() []string { return slices.Clone(c.text) }

// Argv puts arguments in their places. An element that is nothing but an argument
// that is not given falls away. A value that would make its element begin with -
// is refused, since programs read such an element as an option, unless -- stands
// before it in the template: one that an option cannot take for its value, because
// the value that was meant for that has fallen away. Errors are ErrInvalid.
func (c *Command) Argv(args map[string]any) ([]string, error) {
	var out []string
	options := true // still being read
	open := false   // an option may miss its value
	for i, e := range c.argv {
		if len(e) == 1 && e[0].name != "" {
			list, isList := args[e[0].name].([]any)
			if _, given := args[e[0].name]; !given || isList && e[0].each && len(list) == 0 {
				open = open || len(out) > 0 && strings.HasPrefix(out[len(out)-1], "-")
				continue
			}
		}
		values := []string{""}
		if len(e) == 1 && e[0].each {
			list, ok := args[e[0].name].([]any)
			if !ok {
				return nil, argumentError(e[0].name, "it is not a list")
			}
			values = values[:0]
			for _, v := range list {
				s, err := valueText(e[0].name, v)
				if err != nil {
					return nil, err
				}
				values = append(values, s)
			}
		} else {
			var err error
			if values[0], err = fill(e, args); err != nil {
				return nil, err
			}
		}
		for _, s := range values {
			if i > 0 && options && len(e) > 0 && e[0].name != "" && strings.HasPrefix(s, "-") {
				return nil, argumentError(e[0].name, "it begins with -, and would be read as an option")
			}
			out = append(out, s)
		}
		if len(e) == 1 && e[0].text == "--" && !open {
			options = false
		}
		open = false
	}
	return out, nil
}

// fill makes one element.
func fill(e []piece, args map[string]any) (string, error) {
	var b strings.Builder
	for _, p := range e {
		if p.name == "" {
			b.WriteString(p.text)
			continue
		}
		v, ok := args[p.name]
		if !ok {
			return "", argumentError(p.name, "it is not given")
		}
		s, err := valueText(p.name, v)
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// valueText is a value as a part of an argument.
func valueText(name string, v any) (string, error) {
	switch v := v.(type) {
	case string:
		if strings.ContainsRune(v, 0) {
			return "", argumentError(name, "it has a NUL byte")
		}
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		if v {
			return "true", nil
		}
		return "false", nil
	}
	return "", argumentError(name, "it is neither text, a number nor true or false")
}

func argumentError(name, problem string) error {
	return &sandbox.Error{Op: "argument /" + name, Kind: sandbox.ErrInvalid, Problem: problem}
}
