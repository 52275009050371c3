// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool/params"
)

// Server is one entry of servers: an MCP server that runs in a sandbox of its
// own, and what of it may be used.
type Server struct {
	At      Pos
	Name    Value[string]
	Command []Value[string] // looked up inside
	// Prefix stands before the name of each of its tools.
	Prefix Value[string]
	// Tools are those that may be called, the first entry that matches a name
	// counts; none where there are none. Deny are patterns that win over them.
	Tools []ServerTool
	Deny  []Value[string]
	// Resources and Prompts are patterns of the URIs of resources that may be read
	// and of the names of prompts that may be asked for; none where there are none.
	Resources, Prompts []Value[string]
	// Client is what the server may use of its client: ServerUses.
	Client []Value[string]
	Calls  ServerCalls

	// sandbox is a policy of its own. Of the rest of the file the
	// level and best_effort hold where the entry says none, and nothing else.
	sandbox File
}

// ServerTool lets tools be called.
type ServerTool struct {
	At   Pos
	Name string // the server's name for it, or a pattern with *
	As   string // what callers call it; empty is the same
	// Params is a JSON Schema that arguments have to meet beside the server's own.
	Params Value[json.RawMessage]
	Rate   Value[CallRate]
}

// ServerCalls bound the calls of a server's tools; 0 is the gateway's default.
type ServerCalls struct {
	Timeout  Value[time.Duration]
	Output   Value[int64]    // bytes of one result
	Rate     Value[CallRate] // of all calls together
	Parallel Value[int64]
}

// CallRate is how often something may happen: at most N times within any Per.
type CallRate struct {
	N   int64
	Per time.Duration
}

// String is the rate as it is written.
func (r CallRate) String() string {
	for _, u := range rateUnits() {
		if r.Per == u.per {
			return strconv.FormatInt(r.N, 10) + "/" + u.name
		}
	}
	return strconv.FormatInt(r.N, 10) + "/" + r.Per.String()
}

type rateUnit struct {
	name string
	per  time.Duration
}

func rateUnits() []rateUnit {
	return []rateUnit{{"s", time.Second}, {"min", time.Minute}, {"h", time.Hour}, {"day", 24 * time.Hour}}
}

// ParseCallRate reads how often something may happen: "10/min", "5/s", "100/h",
// "1000/day".
func ParseCallRate(s string) (CallRate, error) {
	const hint = "write how often in how long: 10/min, 5/s, 100/h or 1000/day"
	count, unit, _ := strings.Cut(s, "/")
	for _, u := range rateUnits() {
		if u.name != unit {
			continue
		}
		n, err := ParseCount(count, 1e6)
		if err != nil {
			return CallRate{}, invalid(hint, "%s: %v", quote(s), err)
		}
		return CallRate{n, u.per}, nil
	}
	return CallRate{}, invalid(hint, "%s is no rate", quote(s))
}

// Server finds an entry of servers by its name.
func (f *File) Server(name string) *Server {
	for _, s := range f.Servers {
		if s.Name.V == name {
			return s
		}
	}
	return nil
}

// ServerFile is the policy that holds for the sandbox of s, which is of f.
func (f *File) ServerFile(s *Server) *File {
	w := s.sandbox
	w.Name, w.Dir, w.From = f.Name, f.Dir, f.From
	if !w.Isolation.Said() {
		w.Isolation = f.Isolation
	}
	if !w.BestEffort.Said() {
		w.BestEffort = f.BestEffort
	}
	return &w
}

// Place is where the entry stands: file:line.
func (f *File) Place(p Pos) string { return f.rule(p) }

const maxServers = 50

// server reads one entry.
func (d *decoder) server(n *yaml.Node) {
	s := &Server{At: at(n), sandbox: File{Name: d.file.Name, Dir: d.file.Dir, limitsAt: map[sandbox.LimitName]Pos{}}}
	if len(d.file.Servers) == maxServers {
		d.fault(at(n), "", "servers has more than %d entries", maxServers)
		return
	}
	inner := &decoder{file: &s.sandbox}
	inner.mapping(n, "a server", inner.serverFields(s))
	if n.Kind == yaml.MappingNode {
		for _, key := range []string{"name", "command"} {
			if !hasKey(n, key) {
				inner.fault(at(n), "write name: files and command: [program, argument]", "a server has no %s", key)
			}
		}
	}
	if u := s.sandbox.User; u.V == asSudoer {
		inner.fault(u.At, "write user: user, or user: root", "no caller asks for root by name in a server's sandbox")
	}
	for _, other := range d.file.Servers {
		if s.Name.Said() && other.Name.V == s.Name.V {
			inner.fault(s.Name.At, "give it another name", "%s is already in line %d", quote(s.Name.V), other.At.Line)
		}
	}
	d.faults = append(d.faults, inner.faults...)
	d.file.Servers = append(d.file.Servers, s)
}

// sandboxKeys are the keys of a server that say what its sandbox is like. They are
// those of the file.
func sandboxKeys() []string {
	return []string{"isolation", "image", "template", "user", "best_effort", "limits", "watch", "files", "env", "network", "secrets"}
}

func (d *decoder) serverFields(s *Server) []field {
	fields := []field{
		{"name", func(n *yaml.Node) { s.Name = d.text(n, "name", checkServerName) }},
		{"command", func(n *yaml.Node) {
			if s.Command = d.texts(n, "command", checkWord); len(s.Command) == 0 {
				d.fault(at(n), "write command: [program, argument]", "command is empty")
			}
		}},
		{"prefix", func(n *yaml.Node) { s.Prefix = d.text(n, "prefix", checkToolName) }},
		{"tools", func(n *yaml.Node) { d.list(n, "tools", func(n *yaml.Node) { d.serverTool(n, s) }) }},
		{"deny_tools", func(n *yaml.Node) { s.Deny = d.texts(n, "deny_tools", checkToolPattern) }},
		{"resources", func(n *yaml.Node) { s.Resources = d.texts(n, "resources", checkURIPattern) }},
		{"prompts", func(n *yaml.Node) { s.Prompts = d.texts(n, "prompts", checkToolPattern) }},
		{"client", func(n *yaml.Node) { s.Client = d.texts(n, "client", checkUse) }},
		{"calls", func(n *yaml.Node) { d.mapping(n, "calls", d.serverCalls(&s.Calls)) }},
	}
	for _, f := range d.top() {
		if slices.Contains(sandboxKeys(), f.name) {
			fields = append(fields, f)
		}
	}
	return fields
}

// serverTool reads a name or pattern, or a mapping that says more.
func (d *decoder) serverTool(n *yaml.Node, s *Server) {
	t := ServerTool{At: at(n)}
	if n.Kind == yaml.MappingNode {
		d.mapping(n, "a tool", d.serverToolFields(&t))
		if t.Name == "" && !hasKey(n, "name") {
			d.fault(at(n), `write name: read_file, or name: "*"`, "a tool has no name")
		}
		if t.As != "" && strings.Contains(t.Name, "*") {
			d.fault(at(n), "name each tool that gets another name", "as goes with one name, not with the pattern %s", quote(t.Name))
		}
	} else {
		t.Name = d.text(n, "a tool", checkToolPattern).V
	}
	s.Tools = append(s.Tools, t)
}

func (d *decoder) serverToolFields(t *ServerTool) []field {
	return []field{
		{"name", func(n *yaml.Node) { t.Name = d.text(n, "name", checkToolPattern).V }},
		{"as", func(n *yaml.Node) { t.As = d.text(n, "as", checkToolName).V }},
		{"params", func(n *yaml.Node) { t.Params = d.paramsSchema(n) }},
		{"rate", func(n *yaml.Node) { t.Rate = d.rate(n, "rate") }},
	}
}

func (d *decoder) rate(n *yaml.Node, what string) (r Value[CallRate]) {
	r.At = d.value(n, what, scalarText, func(s string) (err error) { r.V, err = ParseCallRate(s); return err })
	return r
}

func (d *decoder) serverCalls(c *ServerCalls) []field {
	return []field{
		{"timeout", func(n *yaml.Node) {
			c.Timeout.At = d.value(n, "calls.timeout", scalarText, func(s string) (err error) { c.Timeout.V, err = ParseDuration(s); return err })
		}},
		{"output", func(n *yaml.Node) {
			c.Output.At = d.value(n, "calls.output", scalarTextOrInt, func(s string) (err error) { c.Output.V, err = ParseSize(s); return err })
		}},
		{"rate", func(n *yaml.Node) { c.Rate = d.rate(n, "calls.rate") }},
		{"parallel", func(n *yaml.Node) {
			c.Parallel.At = d.value(n, "calls.parallel", scalarInt, func(s string) (err error) { c.Parallel.V, err = ParseCount(s, 1000); return err })
		}},
	}
}

// paramsSchema reads a JSON Schema that is written as YAML.
func (d *decoder) paramsSchema(n *yaml.Node) Value[json.RawMessage] {
	var v any
	if !d.allPlain(n) {
		return Value[json.RawMessage]{}
	}
	err := n.Decode(&v)
	var b []byte
	if err == nil {
		b, err = json.Marshal(v)
	}
	if err == nil {
		_, err = params.Compile(b)
	}
	if err != nil {
		d.fault(at(n), "write a JSON Schema: {type: object, properties: {…}}", "params: %v", err)
		return Value[json.RawMessage]{}
	}
	return Value[json.RawMessage]{b, at(n)}
}

// allPlain is plain for n and all that is in it.
func (d *decoder) allPlain(n *yaml.Node) bool {
	ok := d.plain(n)
	for _, c := range n.Content {
		ok = d.allPlain(c) && ok
	}
	return ok
}

const toolNames = "a name has letters, digits, _, - and ., at most 64"

func checkToolName(s string) error {
	if !nameLike(s, "") {
		return invalid(toolNames, "%s is not the name of a tool", quote(s))
	}
	return nil
}

func checkToolPattern(s string) error {
	if !nameLike(s, "*/") {
		return invalid(toolNames+"; * stands for any text", "%s is not the name of a tool", quote(s))
	}
	return nil
}

// ServerUses are what a server may be let use of its client: ask its model, ask its
// user, learn the names of its directories, and tell it what goes on.
func ServerUses() []string { return []string{"sampling", "elicitation", "roots", "logging"} }

func checkUse(s string) error {
	if !slices.Contains(ServerUses(), s) {
		return invalid("write "+strings.Join(ServerUses(), ", "), "%s is nothing that a server may use of its client", quote(s))
	}
	return nil
}

func checkURIPattern(s string) error {
	if s == "" || len(s) > 1024 || strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return invalid("write a URI, in which * stands for any text: file:///notes/*", "%s is no URI of a resource", quote(s))
	}
	return nil
}

func checkServerName(s string) error {
	if !nameLike(s, "") || strings.Contains(s, ".") {
		return invalid("a name has letters, digits, _ and -", "%s is not the name of a server", quote(s))
	}
	return nil
}

func nameLike(s, more string) bool {
	return s != "" && len(s) <= 64 && strings.IndexFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-."+more, r))
	}) < 0
}

func checkWord(s string) error {
	if s == "" || strings.ContainsRune(s, 0) || len(s) > 4096 {
		return invalid("write one argument of a command", "%s is not an argument", quote(s))
	}
	return nil
}

// sum is what the digest of a policy sees of a server.
func (s *Server) sum(f *File) any {
	type tool struct {
		Name, As string
		Params   json.RawMessage `json:",omitempty"`
		Rate     CallRate
	}
	out := struct {
		Name, Prefix string
		Command      []string
		Tools        []tool
		Deny         []string
		Resources    []string `json:",omitempty"`
		Prompts      []string `json:",omitempty"`
		Client       []string `json:",omitempty"`
		Timeout      time.Duration
		Output       int64
		Rate         CallRate
		Parallel     int64
		Sandbox      *canonical `json:"World"` // its name in digests that are on record
	}{Name: s.Name.V, Prefix: s.Prefix.V, Command: texts(s.Command), Deny: texts(s.Deny),
		Resources: texts(s.Resources), Prompts: texts(s.Prompts), Client: texts(s.Client), Timeout: s.Calls.Timeout.V, Output: s.Calls.Output.V,
		Rate: s.Calls.Rate.V, Parallel: s.Calls.Parallel.V, Sandbox: f.ServerFile(s).canonical()}
	for _, t := range s.Tools {
		out.Tools = append(out.Tools, tool{t.Name, t.As, t.Params.V, t.Rate.V})
	}
	return out
}

// ServerWish is what of a server may be used, as a command line says it.
type ServerWish struct {
	Tools, Deny, Resources, Prompts, Client []string
}

// ServerOf is an entry as a command line says it.
func ServerOf(name, prefix string, w ServerWish) (*Server, error) {
	tools, deny := w.Tools, w.Deny
	s := &Server{Name: Value[string]{V: name}, Prefix: Value[string]{V: prefix}}
	check := func(flag, value string, check func(string) error) error {
		err := check(value)
		if err == nil {
			return nil
		}
		return &sandbox.Error{Op: flag, Kind: sandbox.ErrInvalid, Problem: err.Error(), Hint: sandbox.Hint(err)}
	}
	if prefix != "" {
		if err := check("--prefix", prefix, checkToolName); err != nil {
			return nil, err
		}
	}
	for _, t := range tools {
		if err := check("--tool", t, checkToolPattern); err != nil {
			return nil, err
		}
		s.Tools = append(s.Tools, ServerTool{Name: t})
	}
	for _, t := range deny {
		if err := check("--deny-tool", t, checkToolPattern); err != nil {
			return nil, err
		}
		s.Deny = append(s.Deny, Value[string]{V: t})
	}
	for _, more := range []struct {
		flag  string
		list  []string
		check func(string) error
		to    *[]Value[string]
	}{{"--resource", w.Resources, checkURIPattern, &s.Resources}, {"--prompt", w.Prompts, checkToolPattern, &s.Prompts}, {"--client", w.Client, checkUse, &s.Client}} {
		for _, t := range more.list {
			if err := check(more.flag, t, more.check); err != nil {
				return nil, err
			}
			*more.to = append(*more.to, Value[string]{V: t})
		}
	}
	return s, nil
}
