// SPDX-License-Identifier: Apache-2.0

package template

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// ParseYAML reads a template.yaml. It is as strict as a policy file, and reports all faults,
// joined; each is a *sandbox.Error of kind ErrInvalid whose Op is name:line.
//
//	from: host                   # or {image: python:3.14}, or {template: NAME}; host by default
//	apt: [ffmpeg]
//	pip: [numpy==2.4.1]
//	npm: [typescript]
//	copy: [{from: app, to: /srv/app, chown: app, chmod: "0755"}]
//	run: ["useradd app"]
//	env: {MODE: test}
//	workdir: /srv/app
//	user: app
//	start: python3 -m http.server 8000
//	ready: curl -sf localhost:8000
//	limits: {memory: 1GiB}       # of each step
//	network: [preset:git]        # of the steps alone
//	warmup: import numpy
//
// Whatever the order in the file, the steps are: make workdir, apt, pip, npm, copy, run.
// They run as root, in workdir, with env; user is whom sandboxes of the template run as.
// apt, pip and npm add the preset of their name to Network. An entry of run is a line for
// /bin/sh -e, and may have many lines. Values are taken as they stand: no variable in them
// is replaced.
func ParseYAML(name string, src []byte, o Options) (def *Definition, err error) {
	d := &decoder{name: name}
	defer func() {
		if p := recover(); p != nil {
			def, err = nil, fault(sandbox.ErrInvalid, name, 1, "report this with the file", "reading it failed: %v", p)
		}
	}()
	r := &recipe{}
	if root := d.load(src); root != nil {
		d.mapping(root, "a template", r.fields(d))
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	if def, err = r.definition(o); err != nil {
		return nil, place(err, name, 1)
	}
	return def.checked(name)
}

// recipe is what a template.yaml says.
type recipe struct {
	from                Base
	packages            [len(managers)][]string
	copies              []Step
	runs                []Step
	lines               [len(managers)]int // where the lists of packages are
	env                 variables
	dir, user           string
	start, ready, warms string
	limits              sandbox.Limits
	network             []string
}

func (r *recipe) fields(d *decoder) []field {
	fields := []field{{"from", func(n *yaml.Node) { r.from = d.from(n) }}}
	for i, m := range managers {
		fields = append(fields, field{m.name, func(n *yaml.Node) {
			r.packages[i], r.lines[i] = d.texts(n, m.name, m.check), n.Line
		}})
	}
	text := func(name string, to *string, check func(string) error) field {
		return field{name, func(n *yaml.Node) { *to = d.text(n, name, check) }}
	}
	return append(fields, []field{
		{"copy", func(n *yaml.Node) { d.list(n, "copy", func(n *yaml.Node) { r.copies = append(r.copies, d.copy(n)) }) }},
		{"run", func(n *yaml.Node) { d.list(n, "run", func(n *yaml.Node) { r.runs = append(r.runs, d.run(n)) }) }},
		{"env", func(n *yaml.Node) { r.env = d.env(n) }},
		text("workdir", &r.dir, checkDir),
		{"user", func(n *yaml.Node) { r.user = d.scalar(n, "user", true, checkUser) }},
		text("start", &r.start, filled),
		text("ready", &r.ready, filled),
		{"limits", func(n *yaml.Node) { d.limits(n, &r.limits) }},
		{"network", func(n *yaml.Node) { r.network = d.texts(n, "network", checkReach) }},
		text("warmup", &r.warms, filled),
	}...)
}

// definition puts the steps in their order.
func (r *recipe) definition(o Options) (*Definition, error) {
	c := o.base(r.from).clone()
	env, err := baseEnv(c.Env)
	for _, name := range r.env.Keys() {
		value, _ := r.env.Get(name)
		if err == nil {
			env, err = env.set(name, value)
		}
	}
	if err != nil {
		return nil, err
	}
	c.Env, c.Start, c.Ready = env, or(r.start, c.Start), or(r.ready, c.Ready)
	c.Dir, c.User = or(r.dir, c.Dir), or(r.user, c.User)

	var steps []Step
	if r.dir != "" && r.dir != "/" {
		steps = append(steps, Step{Text: "workdir " + r.dir, MakeDir: r.dir})
	}
	network := r.network
	for i, m := range managers {
		if list := r.packages[i]; len(list) > 0 {
			steps = append(steps, m.step(list, env, r.lines[i]))
			if preset := "preset:" + m.name; !slices.Contains(network, preset) {
				network = append(network, preset)
			}
		}
	}
	steps = append(append(steps, r.copies...), r.runs...)
	for i := range steps {
		s := &steps[i]
		s.Text, s.Dir, s.User = oneLine(s.Text), c.Dir, "root"
		if s.Env == nil {
			s.Env = env
		}
		if s.Copy != nil && !path.IsAbs(s.Copy.Target) && c.Dir != "" {
			at := s.Copy.Target
			if s.Copy.Target = path.Join(c.Dir, at); strings.HasSuffix(at, "/") && s.Copy.Target != "/" {
				s.Copy.Target += "/"
			}
		}
	}
	return &Definition{
		Stages: []Stage{{From: r.from, Steps: steps}}, Config: c,
		Network: network, Limits: r.limits, Warmup: r.warms,
	}, nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// from reads host, {image: REF} or {template: NAME}.
func (d *decoder) from(n *yaml.Node) (b Base) {
	const hint = "write host, {image: python:3.14} or {template: NAME}"
	if n.Kind == yaml.ScalarNode {
		d.text(n, "from", func(s string) error {
			if s != "host" {
				return invalid(hint, "%s is not known", quote(s))
			}
			return nil
		})
		return b
	}
	said := 0
	d.mapping(n, "from", []field{
		{"image", func(n *yaml.Node) {
			said++
			d.text(n, "from.image", func(s string) (err error) {
				if s == "scratch" {
					return invalid("a Dockerfile can begin with it", "scratch is no image")
				}
				b, err = imageBase(s)
				return err
			})
		}},
		{"template", func(n *yaml.Node) {
			said++
			b = Base{Kind: Template, Name: d.text(n, "from.template", checkName)}
		}},
	})
	if said != 1 && n.Kind == yaml.MappingNode {
		d.fault(n, hint, "from says %d bases", said)
	}
	return b
}

// checkName refuses what no template is called.
func checkName(s string) error {
	if len(s) > 256 || !templateName.MatchString(s) {
		return invalid("write its name, or name:tag", "%s is no name of a template", quote(s))
	}
	return nil
}

var templateName = lazy(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*(:[A-Za-z0-9._-]+)?$`)

// copy reads {from, to, chown, chmod}.
func (d *decoder) copy(n *yaml.Node) Step {
	c := &Copy{From: ContextDir}
	to := ""
	source := func(n *yaml.Node) {
		d.text(n, "copy.from", func(s string) error {
			s, err := checkSource(s)
			c.Sources = append(c.Sources, s)
			return err
		})
	}
	faults := len(d.faults)
	d.mapping(n, "an entry of copy", []field{
		{"from", func(n *yaml.Node) {
			if n.Kind == yaml.SequenceNode {
				d.list(n, "copy.from", source)
			} else {
				source(n)
			}
		}},
		{"to", func(n *yaml.Node) { to = d.text(n, "copy.to", filled) }},
		{"chown", func(n *yaml.Node) { c.Chown = d.scalar(n, "copy.chown", true, checkUser) }},
		{"chmod", func(n *yaml.Node) { c.Chmod = d.text(n, "copy.chmod", checkMode) }},
	})
	if len(d.faults) == faults {
		if len(c.Sources) == 0 || to == "" {
			d.fault(n, "write {from: FILE, to: /DIR/}", "an entry of copy has no from, or no to")
		} else if err := c.settle(to, ""); err != nil {
			d.fault(n, sandbox.Hint(err), "copy: %s", problem(err))
		}
	}
	return Step{Text: "copy " + strings.Join(c.Sources, " ") + " " + to, Line: n.Line, Copy: c}
}

// run reads a line for the shell.
func (d *decoder) run(n *yaml.Node) Step {
	line := d.text(n, "run", filled)
	return Step{Text: "run " + line, Line: n.Line, Argv: []string{"/bin/sh", "-ec", line}}
}

func (d *decoder) env(n *yaml.Node) (v variables) {
	d.pairs(n, "env", func(key, value *yaml.Node) {
		text, err := d.scalar(value, "env."+key.Value, true, func(string) error { return nil }), error(nil)
		if !variableName.MatchString(key.Value) {
			d.fault(key, "a name is letters, digits and _, and begins with no digit", "%s is no name of a variable", quote(key.Value))
		} else if v, err = v.set(key.Value, text); err != nil {
			d.fault(key, sandbox.Hint(err), "%s", problem(err))
		}
	})
	return v
}

var variableName = lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (d *decoder) limits(n *yaml.Node, to *sandbox.Limits) {
	var fields []field
	for _, name := range sandbox.LimitNames() {
		fields = append(fields, field{string(name), func(n *yaml.Node) {
			d.scalar(n, "limits."+string(name), true, func(s string) error {
				if to.Explicit == nil {
					to.Explicit = map[sandbox.LimitName]bool{}
				}
				to.Explicit[name] = true
				return policy.ReadLimit(to, name, s)
			})
		}})
	}
	d.mapping(n, "limits", fields)
}

func checkDir(s string) error {
	if !path.IsAbs(s) || path.Clean(s) != s || len(s) > 4096 {
		return invalid("write an absolute path, with no / at its end", "%s is no directory", quote(s))
	}
	return nil
}

// checkReach refuses what --allow does not take.
func checkReach(s string) error {
	if _, err := rule.Allow(s, ""); err != nil {
		return invalid(`write a host (pypi.org), "*.example.com", host:port or preset:pip`, "%s allows nothing: %v", quote(s), err)
	}
	if w := rule.Word(s); w != "" && slices.Contains(rule.Presets(), w) {
		return invalid("write preset:"+w, "%s is a word, and no host", quote(s))
	}
	return nil
}

// pattern is a regular expression that is compiled when it is first used.
type pattern func() *regexp.Regexp

func (p pattern) MatchString(s string) bool { return p().MatchString(s) }
