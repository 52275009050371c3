// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/sandbox"
)

// Commands is the section commands: what may be started, decided on the parsed
// command (see policy/shell).
type Commands struct {
	At    Pos
	Allow Value[[]AllowedCommand] // not said: every program; an empty list: none
	Deny  []Value[string]
	Ask   []AskedCommand
	Env   []Value[string] // variables that a line may set
	// Enforce says whether nothing but the list may be executed, whatever arguments
	// it lets programs have. Not said: where the level can, and the list says all.
	Enforce Value[bool]
}

// AllowedCommand is a program that may be started.
type AllowedCommand struct {
	Name string // a name, a path, or *
	Args []Value[string]
	At   Pos
}

// AskedCommand is a command that needs a yes.
type AskedCommand struct {
	Pattern  string
	Channels []string // that may answer; nil is those of approvals
	At       Pos
}

// anything as an argument means all arguments, whatever they make the program
// start.
const anything = "**"

// commands are the keys of commands.
func (d *decoder) commands() []field {
	c := &d.file.Commands
	return []field{
		{"allow", func(n *yaml.Node) {
			c.Allow.At = at(n)
			d.list(n, "commands.allow", func(n *yaml.Node) {
				if n.Kind == yaml.MappingNode {
					a := AllowedCommand{At: at(n)}
					d.mapping(n, "an allowed command", d.allowedCommand(&a))
					if a.Name == "" && !hasKey(n, "name") {
						d.fault(at(n), "write name: git", "an allowed command has no name")
					}
					c.Allow.V = append(c.Allow.V, a)
				} else if v := d.text(n, "commands.allow", checkProgram); v.Said() {
					c.Allow.V = append(c.Allow.V, AllowedCommand{Name: v.V, At: v.At})
				}
			})
		}},
		{"deny", func(n *yaml.Node) { c.Deny = d.texts(n, "commands.deny", checkCommand) }},
		{"ask", func(n *yaml.Node) { d.list(n, "commands.ask", d.askedCommand) }},
		{"enforce", func(n *yaml.Node) { c.Enforce = d.boolean(n, "commands.enforce") }},
		{"env", func(n *yaml.Node) { c.Env = d.texts(n, "commands.env", checkEnvName) }},
	}
}

// askedCommand reads a pattern, or one with the channels that may answer.
func (d *decoder) askedCommand(n *yaml.Node) {
	a := AskedCommand{At: at(n)}
	if n.Kind == yaml.MappingNode {
		d.mapping(n, "an asked command", d.askedFields(&a))
		if !hasKey(n, "command") {
			d.fault(at(n), `write command: "git push *"`, "an asked command has no command")
		}
	} else {
		a.Pattern = d.text(n, "commands.ask", checkCommand).V
	}
	if a.Pattern != "" {
		d.file.Commands.Ask = append(d.file.Commands.Ask, a)
	}
}

func (d *decoder) askedFields(a *AskedCommand) []field {
	return []field{
		{"command", func(n *yaml.Node) { a.Pattern = d.text(n, "command", checkCommand).V }},
		{"channels", func(n *yaml.Node) { a.Channels = texts(d.texts(n, "channels", oneOf(Channels()...))) }},
	}
}

func (d *decoder) allowedCommand(a *AllowedCommand) []field {
	return []field{
		{"name", func(n *yaml.Node) { a.Name = d.text(n, "name", checkProgram).V }},
		{"args", func(n *yaml.Node) { a.Args = d.texts(n, "args", checkArgs) }},
	}
}

// checkProgram refuses what is no program's name.
func checkProgram(s string) error {
	switch {
	case s == "" || strings.ContainsAny(s, " \t\n"):
		return invalid("write {name: git, args: [status]} for a program with arguments", "%s is not the name of one program", quote(s))
	case s != "*" && strings.ContainsAny(s, "*?[]{}$`\"'\\|&;<>()~"):
		return invalid(`name the programs one by one, or write "*" for all`, "%s is not a program's name: it is no pattern, and no shell reads it", quote(s))
	}
	return nil
}

// checkArgs refuses what no command can match.
func checkArgs(s string) error {
	if strings.TrimSpace(s) == "" {
		return invalid("write the words that must follow, as in: push origin *", "there are no arguments")
	}
	return checkWords(s)
}

func checkCommand(s string) error {
	if strings.TrimSpace(s) == "" {
		return invalid("write a program and its arguments, as in: rm -rf *", "there is no command")
	}
	return checkWords(s)
}

// checkWords: patterns are words with *; a shell's marks in them would look as
// if they meant something.
func checkWords(s string) error {
	if i := strings.IndexAny(s, "|&;<>$`\"'\\(){}"); i >= 0 {
		return invalid("write the words of one command, without quotes; each command of a line is judged by itself", "%s: %s means nothing in a pattern", quote(s), quote(s[i:i+1]))
	}
	return nil
}

// PlanCommands is what a plan says of commands: for records and for explain.
type PlanCommands struct {
	Allow []PlanRule `json:"allow,omitempty"`
	Deny  []PlanRule `json:"deny,omitempty"`
	Ask   []PlanRule `json:"ask,omitempty"`
	// Programs are all that may be started, by name, besides Carriers; nil where
	// a layer lets a program start anything (*, or ** as its arguments), or none has
	// a list.
	Programs []string `json:"programs,omitempty"`
	// Enforce is the line that wants nothing else executed, or no call; empty is none.
	Enforce string `json:"enforce,omitempty"`
}

// Carriers are programs that every list lets start, because what they are for is
// to start others, which are judged themselves, or to print.
const Carriers = "sh bash dash env nice nohup timeout setsid stdbuf ionice xargs find true false echo printf pwd test ["

// programs are the names of the section's list, and those that may be approved;
// bounded is false where they do not say all that may be started.
func (c *Commands) programs(asked bool) (names []string, bounded bool) {
	if !c.Allow.Said() || c.Enforce.Said() && !c.Enforce.V {
		return nil, false
	}
	for _, a := range c.Allow.V {
		if a.any() && !c.Enforce.V || a.Name == "*" {
			return nil, false
		}
		names = append(names, a.Name)
	}
	if asked {
		for _, a := range c.Ask {
			if name := strings.Fields(a.Pattern)[0]; !strings.Contains(name, "*") {
				names = append(names, name)
			}
		}
	}
	return names, true
}

// allPrograms is what all layers together let start. Programs that one of them
// names by path and another by name count as the same.
func allPrograms(layers []*File, asked bool) []string {
	var all []string
	first := true
	for _, f := range layers {
		names, bounded := f.Commands.programs(asked)
		switch {
		case !bounded:
		case first:
			all, first = names, false
		default:
			all = slices.DeleteFunc(all, func(n string) bool {
				return !slices.ContainsFunc(names, func(m string) bool { return sameProgram(m, n, false) || sameProgram(n, m, false) })
			})
		}
	}
	if first {
		return nil
	}
	if len(all) == 0 {
		return []string{"true"} // nothing but the carriers
	}
	return all
}

// String is the name, with the patterns of its arguments.
func (a AllowedCommand) String() string {
	if len(a.Args) == 0 {
		return a.Name
	}
	return a.Name + " [" + strings.Join(texts(a.Args), ", ") + "]"
}

// planCommands lists what the layers say.
func planCommands(layers []*File) *PlanCommands {
	var out *PlanCommands
	for _, f := range layers {
		c := &f.Commands
		if !c.At.Said() {
			continue
		}
		if out == nil {
			out = &PlanCommands{}
		}
		if c.Enforce.V {
			out.Enforce = f.rule(c.Enforce.At)
		}
		for _, a := range c.Allow.V {
			out.Allow = append(out.Allow, PlanRule{a.String(), f.rule(a.At)})
		}
		if c.Allow.Said() && len(c.Allow.V) == 0 {
			out.Allow = append(out.Allow, PlanRule{"nothing", f.rule(c.Allow.At)})
		}
		for _, v := range c.Deny {
			out.Deny = append(out.Deny, PlanRule{v.V, f.rule(v.At)})
		}
		for _, v := range c.Ask {
			out.Ask = append(out.Ask, PlanRule{v.Pattern, f.rule(v.At)})
		}
	}
	return out
}

// How the section holds.
const (
	commandsDetail   = "parsed only: what a program starts once it runs is not looked at"
	commandsAnything = "parsed only: the list lets a program start anything"
	commandsHeld     = "parsed, and nothing else is executed (where each program has a file of its own, which code inside cannot change)"
)

// commands says what may be started.
func (e *explainer) commands() {
	c := e.plan.Commands
	if c == nil {
		return
	}
	state := func(can sandbox.Capabilities) sandbox.Clause {
		switch {
		case can.Executables && len(c.Programs) > 0:
			return sandbox.Clause{Enforcement: sandbox.Enforced, Detail: commandsHeld}
		case c.Enforce != "":
			return e.can(e.plan.BestEffort, "commands.enforce: it does not look at what is executed, or the list says not all that may be")
		case can.Executables:
			return sandbox.Clause{Enforcement: sandbox.Emulated, Detail: commandsAnything}
		}
		return sandbox.Clause{Enforcement: sandbox.Emulated, Detail: commandsDetail}
	}
	for _, l := range []struct {
		name  string
		rules []PlanRule
	}{{"commands.allow", c.Allow}, {"commands.deny", c.Deny}, {"commands.ask", c.Ask}} {
		for _, r := range l.rules {
			e.add(l.name, r.Text, r.From, state)
		}
	}
}

// sum is the section without places.
func (c *Commands) sum() any {
	if !c.At.Said() {
		return nil
	}
	var allow []string
	for _, a := range c.Allow.V {
		allow = append(allow, a.Name+"\x00"+strings.Join(texts(a.Args), "\x00"))
	}
	slices.Sort(allow)
	var ask []string
	for _, a := range c.Ask {
		ask = append(ask, a.Pattern+"\x00"+strings.Join(a.Channels, "\x00"))
	}
	return struct {
		Listed           bool
		Allow            []string
		Deny, Ask, Names []string
		Enforce          string `json:",omitempty"`
	}{c.Allow.Said(), allow, texts(c.Deny), ask, texts(c.Env), c.enforces()}
}

// enforces is what Enforce says, for the digest.
func (c *Commands) enforces() string {
	if !c.Enforce.Said() {
		return ""
	}
	return strconv.FormatBool(c.Enforce.V)
}
