// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool/params"
)

// Bounds of what a server says of itself.
const (
	maxTools       = 500
	maxList        = 4 << 20  // bytes of all definitions together
	maxDescription = 16 << 10 // bytes
	maxTitle       = 256
)

// offered is a tool of a server that callers may call.
type offered struct {
	theirs string    // its server's name for it
	def    *sdk.Tool // as callers see it
	digest string    // of def
	schema *params.Schema
	narrow *params.Schema    // the policy's; nil without
	rule   string            // the policy's entry, file:line
	rates  []policy.PlanRate // how often, with all of its server's
}

// hidden is a tool of a server that is not listed, and why.
type hidden struct {
	Name, Why string
	// Changed says that an approval would show it.
	Changed bool
}

// seen is a tool as its server describes it, in the form that is pinned.
func seen(t *sdk.Tool) (ToolSeen, error) {
	b, err := json.Marshal(t) // names of objects are sorted
	if err != nil {
		return ToolSeen{}, err
	}
	sum := sha256.Sum256(b)
	return ToolSeen{Digest: "sha256:" + hex.EncodeToString(sum[:]), Definition: b}, nil
}

// pinOf is a pin of all that a server offers now.
func (u *upstream) pinOf(tools []*sdk.Tool, at time.Time) (*Pin, error) {
	p := &Pin{Server: u.o.Name, Command: u.o.Call.Argv, Image: u.o.Image, At: at.UTC(), Tools: map[string]ToolSeen{}}
	for _, t := range tools {
		s, err := seen(t)
		if err != nil {
			return nil, err
		}
		p.Tools[t.Name] = s
	}
	return p, nil
}

// catalog is what of a server's tools callers get.
func (u *upstream) catalog(tools []*sdk.Tool, pin *Pin) (out []*offered, not []hidden) {
	known := map[string]bool{}
	for _, t := range tools {
		o, why, changed := u.offer(t, pin)
		switch {
		case why != "":
			not = append(not, hidden{line(t.Name, 128), why, changed})
		case known[o.def.Name]:
			not = append(not, hidden{line(t.Name, 128), "another of its tools has the name " + o.def.Name, false})
		default:
			known[o.def.Name] = true
			out = append(out, o)
		}
	}
	return out, not
}

// offer makes a tool fit to be shown, or says why it is not shown.
func (u *upstream) offer(t *sdk.Tool, pin *Pin) (o *offered, why string, changed bool) {
	rule, why := u.entry(t.Name)
	if why != "" {
		return nil, why, false
	}
	now, err := seen(t)
	if err != nil {
		return nil, "its definition cannot be kept", false
	}
	switch was, ok := pin.Tools[t.Name]; {
	case !ok:
		return nil, "it is new since the server was approved", true
	case was.Digest != now.Digest:
		return nil, "what it says of itself has changed since it was approved", true
	}
	o = &offered{theirs: t.Name, rule: u.o.place(rule.At), rates: u.rates(rule)}
	if o.def, err = clean(now.Definition); err != nil {
		return nil, err.Error(), false
	}
	name := t.Name
	if rule.As != "" {
		name = rule.As
	}
	o.def.Name = u.o.Server.Prefix.V + name
	if !callable().MatchString(o.def.Name) {
		return nil, "its name is not one that clients take; give it another with as", false
	}
	if o.schema, err = compile(o.def.InputSchema); err != nil {
		return nil, line("its input schema is not taken: "+err.Error(), 300), false
	}
	if rule.Params.Said() {
		if o.narrow, err = params.Compile(rule.Params.V); err != nil {
			return nil, line("the policy's schema is not taken: "+err.Error(), 300), false
		}
	}
	if _, err := compile(o.def.OutputSchema); o.def.OutputSchema != nil && err != nil {
		o.def.OutputSchema = nil // clients would check results with it
	}
	shown, err := seen(o.def)
	o.digest = shown.Digest
	if err != nil {
		return nil, "its definition cannot be shown", false
	}
	return o, "", false
}

var callable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`) })

// entry is the policy's entry for a tool, or why there is none.
func (u *upstream) entry(name string) (*policy.ServerTool, string) {
	for _, d := range u.o.Server.Deny {
		if sandbox.Matches(d.V, name) {
			return nil, "the policy denies it (" + u.o.place(d.At) + ")"
		}
	}
	for i := range u.o.Server.Tools {
		if t := &u.o.Server.Tools[i]; sandbox.Matches(t.Name, name) {
			return t, ""
		}
	}
	return nil, "the policy does not list it"
}

// clean is a definition with plain texts and without what callers could fetch
// (icons) or would pass on unread (_meta).
func clean(definition json.RawMessage) (*sdk.Tool, error) {
	t := &sdk.Tool{}
	if err := json.Unmarshal(definition, t); err != nil {
		return nil, fmt.Errorf("its definition is not taken: %s", line(err.Error(), 200))
	}
	t.Meta, t.Icons = nil, nil
	t.Title, t.Description = line(t.Title, maxTitle), plain(t.Description, maxDescription)
	if t.Annotations != nil {
		t.Annotations.Title = line(t.Annotations.Title, maxTitle)
	}
	t.InputSchema, t.OutputSchema = schemaText(t.InputSchema), schemaText(t.OutputSchema)
	in, ok := t.InputSchema.(map[string]any)
	if !ok || in["type"] != "object" {
		return nil, fmt.Errorf(`its input schema is not of the type "object"`)
	}
	return t, nil
}

// schemaText gives a schema plain texts. Of older drafts, whose schemas say the
// same here unless they use what has changed since, it takes the name off, so
// that it is read by the newest; compile looks for what has changed.
func schemaText(v any) any {
	v = plainValue(v, maxDescription)
	if m, ok := v.(map[string]any); ok {
		if draft, _ := m["$schema"].(string); strings.HasPrefix(draft, "http://json-schema.org/draft-0") {
			delete(m, "$schema")
		}
	}
	return v
}

func compile(schema any) (*params.Schema, error) {
	if word := changedWord(schema, 0); word != "" {
		return nil, fmt.Errorf("%s means something else in older drafts", word)
	}
	b, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	return params.Compile(b)
}

// changedWord finds a word of older drafts that the newest does not know, and
// that would be passed over.
func changedWord(v any, depth int) string {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if w := changedWord(e, depth+1); w != "" {
				return w
			}
		}
	case map[string]any:
		if _, list := v["items"].([]any); list {
			return "a list of items"
		}
		for k, e := range v {
			if w := changedWord(e, depth+1); w != "" {
				return w
			}
			if _, object := e.(map[string]any); object && k == "dependencies" {
				return k
			}
		}
	}
	return ""
}
