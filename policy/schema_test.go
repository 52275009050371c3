// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool"
	"github.com/caisson-run/caisson/tool/params/drafts"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// compiled is the schema as a validator has it.
func compiled(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	drafts.Ready()
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	if s.DraftVersion != 2020 {
		t.Errorf("draft %d", s.DraftVersion)
	}
	return s
}

// validate checks YAML against the schema; what is no YAML is no error here.
func validate(t testing.TB, s *jsonschema.Schema, src []byte) error {
	t.Helper()
	var v any
	if yaml.Unmarshal(src, &v) != nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// schemaNode is the part of a schema that has keys.
type schemaNode struct {
	Description          string
	Properties           map[string]*schemaNode
	Items                *schemaNode
	AnyOf                []*schemaNode
	AdditionalProperties json.RawMessage
	Enum                 []string
	Minimum, Maximum     float64
}

// TestSchemaKeys: every key that is parsed is in the schema, and every key of
// the schema is parsed.
func TestSchemaKeys(t *testing.T) {
	var top schemaNode
	if err := json.Unmarshal(Schema(), &top); err != nil {
		t.Fatal(err)
	}
	d := &decoder{file: &File{}}
	same := func(what string, n *schemaNode, fields []field, refused ...string) {
		t.Helper()
		var parsed []string
		for _, f := range fields {
			if !slices.Contains(refused, f.name) {
				parsed = append(parsed, f.name)
			}
		}
		slices.Sort(parsed)
		if diff := cmp.Diff(parsed, slices.Sorted(maps.Keys(n.Properties))); diff != "" {
			t.Errorf("%s (-parsed +schema)\n%s", what, diff)
		}
		if string(n.AdditionalProperties) != "false" {
			t.Errorf("%s takes unknown keys", what)
		}
		for key, v := range n.Properties {
			if !strings.HasSuffix(v.Description, ".") {
				t.Errorf("%s.%s has no description", what, key)
			}
		}
	}
	p := top.Properties
	same("top", &top, d.top())
	same("limits", p["limits"], d.limits())
	same("cooling", p["cooling"].AnyOf[1], d.coolingFields())
	same("watch", p["watch"].Items, d.watchFields(&WatchRule{}))
	same("files", p["files"], d.files())
	same("workspace", p["files"].Properties["workspace"], d.workspaceFields(&Mount{}))
	same("mounts", p["files"].Properties["mounts"].Items, d.mountFields(&Mount{}))
	same("env", p["env"], d.env())
	same("network", p["network"], d.network())
	same("commands", p["commands"], d.commands())
	same("code", p["code"], d.code())
	for _, l := range []string{"python", "javascript"} {
		same("code."+l, p["code"].Properties[l], d.codeRules("", &CodeRules{}))
	}
	same("an asked command", p["commands"].Properties["ask"].Items.AnyOf[1], d.askedFields(&AskedCommand{}))
	same("approvals", p["approvals"], d.approvals())
	same("webhook", p["approvals"].Properties["webhook"], d.webhookFields(&Webhook{}))
	if diff := cmp.Diff(Channels(), p["approvals"].Properties["channels"].Items.Enum); diff != "" {
		t.Errorf("channels: %s", diff)
	}
	same("a rule", p["network"].Properties["allow"].Items.AnyOf[1], d.webFields(&WebRule{}))
	same("secrets", p["secrets"].Items, d.secretFields(&Secret{}))
	same("tests", p["tests"].Items, d.trialFields(&Trial{}))
	same("risk", p["risk"], d.risk())
	same("an entry of tools", p["tools"].Items.AnyOf[1], d.toolFields(&ToolRule{}))
	same("http", p["tools"].Items.AnyOf[1].Properties["http"], d.httpFields(&tool.HTTPSpec{}))
	same("approve", p["tools"].Items.AnyOf[1].Properties["approve"].AnyOf[1], d.approveFields(&ToolRule{}))
	same("a server", p["servers"].Items, d.serverFields(&Server{}))
	same("a tool", p["servers"].Items.Properties["tools"].Items.AnyOf[1], d.serverToolFields(&ServerTool{}))
	same("calls", p["servers"].Items.Properties["calls"], d.serverCalls(&ServerCalls{}))
	same("budget", p["network"].Properties["budget"], d.budget())

	if diff := cmp.Diff(Isolations(), p["isolation"].Enum); diff != "" {
		t.Errorf("isolation: %s", diff)
	}
	if diff := cmp.Diff(accessWords(), p["files"].Properties["mounts"].Items.Properties["mode"].Enum); diff != "" {
		t.Errorf("mode: %s", diff)
	}
	defaults := sandbox.DefaultLimits()
	for _, l := range limits() {
		n := p["limits"].Properties[string(l.name)]
		if n.Maximum != 0 && (n.Maximum != l.max || n.Minimum != l.min) {
			t.Errorf("%s lies between %v and %v in the schema, %v and %v here", l.name, n.Minimum, n.Maximum, l.min, l.max)
		}
		if v := l.get(&defaults); !strings.HasSuffix(n.Description, "Default: "+l.show(v)+".") {
			t.Errorf("%s: %q does not end with the default %s", l.name, n.Description, l.show(v))
		}
	}
}

// TestSchemaTakesWhatParseTakes holds for every example of this package.
func TestSchemaTakesWhatParseTakes(t *testing.T) {
	s := compiled(t)
	var examples [][]byte
	goldens, _ := filepath.Glob("testdata/*.txtar")
	for _, g := range goldens {
		src, err := os.ReadFile(g)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range strings.Split(string(src), "\n== ")[1:] {
			_, body, _ := strings.Cut(c, "\n")
			input, _, _ := strings.Cut(body, "----\n")
			examples = append(examples, []byte(input))
		}
	}
	all, err := os.ReadFile("testdata/all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	examples = append(examples, all)
	taken, refused := 0, 0
	for _, src := range examples {
		_, parseErr := Parse("p.yaml", src)
		schemaErr := validate(t, s, src)
		if parseErr == nil {
			taken++
			if schemaErr != nil {
				t.Errorf("Parse takes it, the schema does not: %v\n%s", schemaErr, src)
			}
		}
		if schemaErr != nil {
			refused++
		}
	}
	if taken < 4 || refused < 15 {
		t.Errorf("%d examples are taken by Parse and %d refused by the schema: too few to prove anything", taken, refused)
	}
}

func TestPresets(t *testing.T) {
	s := compiled(t)
	digests := map[string]bool{}
	for _, name := range Presets() {
		src, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse("/srv/"+name+".yaml", src)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, s, src); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		p, err := New(Options{File: f})
		if err != nil {
			t.Fatal(err)
		}
		if v := p.Decide(command(nil)); v.Decision != Allow || v.Plan.Isolation != "gvisor" || v.Plan.Root || v.Plan.BestEffort {
			t.Errorf("%s: %v %s, plan %+v", name, v.Decision, v.Reason, v.Plan)
		}
		if comments := strings.Count(string(src), "#"); comments < 5 {
			t.Errorf("%s has %d comments", name, comments)
		}
		digests[p.Digest()] = true
	}
	if files, _ := filepath.Glob("preset/*.yaml"); len(digests) != len(files) {
		t.Errorf("%d files, %d presets", len(files), len(digests))
	}
	if _, err := Preset("lockeddown"); !errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(sandbox.Hint(err), "locked-down") {
		t.Errorf("%v, hint %q", err, sandbox.Hint(err))
	}
	if _, err := Preset("../testdata/all"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("a path is a preset: %v", err)
	}
}
