// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"unicode"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"go.yaml.in/yaml/v4"
)

// top are the keys of a policy file.
func (d *decoder) top() []field {
	f := d.file
	return []field{
		{"version", func(n *yaml.Node) { d.readVersion(n) }},
		{"isolation", func(n *yaml.Node) { f.Isolation = d.text(n, "isolation", isLevel) }},
		{"image", func(n *yaml.Node) { d.image(d.text(n, "image", checkImage)) }},
		{"template", func(n *yaml.Node) {
			t := d.text(n, "template", checkTemplate)
			t.V = templatePrefix + t.V
			d.image(t)
		}},
		{"images", func(n *yaml.Node) { f.Images = d.texts(n, "images", reference.CheckPattern) }},
		{"user", func(n *yaml.Node) { f.User = d.text(n, "user", oneOf(users...)) }},
		{"best_effort", func(n *yaml.Node) { f.BestEffort = d.boolean(n, "best_effort") }},
		{"terminal", func(n *yaml.Node) { f.Terminal = d.boolean(n, "terminal") }},
		{"limits", func(n *yaml.Node) { d.mapping(n, "limits", d.limits()) }},
		{"watch", func(n *yaml.Node) { d.list(n, "watch", d.watch) }},
		{"cooling", d.cooling},
		{"files", func(n *yaml.Node) { f.Files.At = d.key; d.mapping(n, "files", d.files()) }},
		{"changes", func(n *yaml.Node) { f.Changes.At = d.key; d.mapping(n, "changes", d.changes()) }},
		{"env", func(n *yaml.Node) { f.Env.At = d.key; d.mapping(n, "env", d.env()) }},
		{"commands", func(n *yaml.Node) { f.Commands.At = d.key; d.mapping(n, "commands", d.commands()) }},
		{"code", func(n *yaml.Node) { f.Code.At = d.key; d.mapping(n, "code", d.code()) }},
		{"approvals", func(n *yaml.Node) { f.Approvals.At = d.key; d.mapping(n, "approvals", d.approvals()) }},
		{"risk", func(n *yaml.Node) { f.Risk.At = d.key; d.mapping(n, "risk", d.risk()) }},
		{"tools", d.tools},
		{"tests", d.trials},
		{"network", func(n *yaml.Node) { f.Network.At = d.key; d.mapping(n, "network", d.network()) }},
		{"secrets", func(n *yaml.Node) { d.list(n, "secrets", d.secret) }},
		{"servers", func(n *yaml.Node) { d.list(n, "servers", d.server) }},
	}
}

// sectionKeys are the keys within a section of the top level.
func sectionKeys(section string) []string {
	d := &decoder{file: &File{}}
	fields := map[string]func() []field{"limits": d.limits, "cooling": d.coolingFields, "files": d.files, "changes": d.changes, "env": d.env, "network": d.network, "commands": d.commands, "code": d.code, "risk": d.risk, "approvals": d.approvals}[section]
	if fields == nil {
		return nil
	}
	var names []string
	for _, f := range fields() {
		names = append(names, f.name)
	}
	return names
}

func (d *decoder) readVersion(n *yaml.Node) {
	p := d.value(n, "version", scalarInt, func(s string) error {
		if s != "1" {
			return invalid("write version: 1", "version %s is not known", quote(s))
		}
		return nil
	})
	d.version = Value[string]{n.Value, p}
}

// limits are the keys of limits: the table's, and on_output.
func (d *decoder) limits() []field {
	var fields []field
	for _, l := range limits() {
		fields = append(fields, field{string(l.name), func(n *yaml.Node) {
			d.value(n, "limits."+string(l.name), l.scalar, func(s string) error {
				if l.name == sandbox.LimitWall && s == none {
					d.file.NoWall = at(n)
					return nil
				}
				v, err := l.read(s)
				if err == nil {
					l.set(&d.file.Limits, v)
					d.limitSaid(l.name, n)
				}
				return err
			})
		}})
	}
	return append(fields, field{string(limitOnOutput), func(n *yaml.Node) {
		v := d.text(n, "limits.on_output", oneOf("truncate", "kill"))
		d.file.Limits.OutputKill = v.V == "kill"
		d.limitSaid(limitOnOutput, n)
	}})
}

// none is limits.wall where there is none.
const none = "none"

func (d *decoder) limitSaid(name sandbox.LimitName, n *yaml.Node) {
	if d.file.Limits.Explicit == nil {
		d.file.Limits.Explicit = map[sandbox.LimitName]bool{}
	}
	d.file.Limits.Explicit[name] = true
	d.file.limitsAt[name] = at(n)
}

// watch reads one rule.
func (d *decoder) watch(n *yaml.Node) {
	r := WatchRule{Do: WatchKill, From: d.file.rule(at(n))}
	d.mapping(n, "a watch rule", d.watchFields(&r))
	if r.Metric == "" && n.Kind == yaml.MappingNode && !hasKey(n, "when") {
		d.fault(at(n), `write when: "cpu_percent > 80"`, "a watch rule has no when")
	}
	d.file.Watch = append(d.file.Watch, r)
}

func (d *decoder) watchFields(r *WatchRule) []field {
	return []field{
		{"when", func(n *yaml.Node) { d.text(n, "when", func(s string) error { return parseWhen(s, r) }) }},
		{"for", func(n *yaml.Node) {
			d.text(n, "for", func(s string) (err error) { r.For, err = ParseDuration(s); return err })
		}},
		{"do", func(n *yaml.Node) { r.Do = d.text(n, "do", oneOf(WatchKill, WatchReport)).V }},
	}
}

// files are the keys of files.
func (d *decoder) files() []field {
	f := &d.file.Files
	return []field{
		{"workspace", func(n *yaml.Node) {
			m := Mount{At: at(n), Access: sandbox.CopyOnWrite}
			d.mount(n, "files.workspace", &m, d.workspaceFields(&m))
			f.Workspace = &m
		}},
		{"mounts", func(n *yaml.Node) {
			d.list(n, "files.mounts", func(n *yaml.Node) {
				m := Mount{At: at(n)}
				d.mount(n, "a mount", &m, d.mountFields(&m))
				f.Mounts = append(f.Mounts, m)
			})
		}},
		{"volumes", func(n *yaml.Node) { d.list(n, "files.volumes", d.volume) }},
		{"writable", func(n *yaml.Node) {
			f.Writable = Value[[]Value[string]]{d.texts(n, "files.writable", checkTarget), at(n)}
		}},
		{"deny", func(n *yaml.Node) { f.Deny = d.texts(n, "files.deny", checkGlob) }},
		{"collect", func(n *yaml.Node) { f.Collect = d.texts(n, "files.collect", checkGlob) }},
		{"toolchains", func(n *yaml.Node) { f.Toolchains = d.texts(n, "files.toolchains", checkHostPath) }},
		{"rootfs", func(n *yaml.Node) { f.Rootfs = d.text(n, "files.rootfs", checkHostPath) }},
	}
}

func checkGlob(s string) error { _, err := ParseGlob(s); return err }

// mount reads a mount or workspace, which must have a source.
func (d *decoder) mount(n *yaml.Node, what string, m *Mount, fields []field) {
	d.mapping(n, what, fields)
	if n.Kind == yaml.MappingNode && m.Source == "" && !hasKey(n, "source") {
		d.fault(at(n), "write source: ./data", "%s has no source", what)
	}
	if m.Shared && m.Access != sandbox.ReadWrite {
		d.fault(at(n), "write mode: rw, or leave shared out", "%s has shared: true, and is not mounted rw", what)
	}
	if m.GitWrite && m.Access != sandbox.ReadWrite {
		d.fault(at(n), "write mode: rw, or leave git out", "%s has git: rw, and is not mounted rw", what)
	}
}

func (d *decoder) workspaceFields(m *Mount) []field {
	return []field{
		{"source", func(n *yaml.Node) { m.Source = d.text(n, "source", checkHostPath).V }},
		{"mode", func(n *yaml.Node) {
			d.text(n, "mode", func(s string) (err error) { m.Access, err = ParseAccess(s); return err })
		}},
		{"shared", func(n *yaml.Node) { m.Shared = d.boolean(n, "shared").V }},
		{"git", func(n *yaml.Node) {
			m.GitWrite = d.text(n, "git", func(s string) error { _, err := ParseGit(s); return err }).V == string(GitWrite)
		}},
	}
}

func (d *decoder) mountFields(m *Mount) []field {
	return append(d.workspaceFields(m), field{"target", func(n *yaml.Node) {
		m.Target = d.text(n, "target", checkTarget).V
	}})
}

func hasKey(n *yaml.Node, name string) bool {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

// env are the keys of env.
func (d *decoder) env() []field {
	e := &d.file.Env
	return []field{
		{"any", func(n *yaml.Node) { e.Any = d.boolean(n, "env.any") }},
		{"pass", func(n *yaml.Node) { e.Pass = d.texts(n, "env.pass", checkEnvName) }},
		{"set", func(n *yaml.Node) {
			e.Set = map[string]Value[string]{}
			for key, value := range d.pairs(n, "env.set") {
				if err := checkEnvName(key.Value); err != nil {
					d.fault(at(key), "a name has letters, digits and _", "env.set: %v", err)
				}
				if d.plain(value) {
					e.Set[key.Value] = d.text(value, "env.set."+key.Value, checkEnvValue)
				}
			}
		}},
	}
}

// checkEnvName refuses what no program can look up.
func checkEnvName(s string) error {
	blank := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	if s == "" || len(s) > 256 || strings.ContainsAny(s, "=*?") || strings.ContainsFunc(s, blank) {
		return invalid("name one variable, without =, * and blanks", "%s is not the name of a variable", quote(s))
	}
	return nil
}

// checkEnvValue refuses what the kernel cannot hand over.
func checkEnvValue(s string) error {
	if strings.ContainsRune(s, 0) || len(s) > 128<<10-1024 {
		return invalid("the kernel takes 128 KiB without a NUL byte", "the value is too long or has a NUL byte")
	}
	return nil
}
