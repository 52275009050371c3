// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Bounds of what a server has beside tools.
const (
	maxPrompts   = 500
	maxResources = 2000
	maxURI       = 4096
)

// survey is what a server says that it has.
type survey struct {
	tools     []*sdk.Tool
	prompts   []*sdk.Prompt
	resources []*sdk.Resource
	templates []*sdk.ResourceTemplate
}

// survey asks a server for its tools, and for the rest where the policy lets any of
// it be used.
func (u *upstream) survey(ctx context.Context, cs *sdk.ClientSession) (*survey, error) {
	s := &survey{}
	can := &sdk.ServerCapabilities{}
	if r := cs.InitializeResult(); r != nil && r.Capabilities != nil {
		can = r.Capabilities
	}
	var err error
	if len(u.o.Server.Tools) > 0 {
		if s.tools, err = all(cs.Tools(ctx, nil), "tools", maxTools); err != nil {
			return nil, err
		}
	}
	if len(u.o.Server.Prompts) > 0 && can.Prompts != nil {
		if s.prompts, err = all(cs.Prompts(ctx, nil), "prompts", maxPrompts); err != nil {
			return nil, err
		}
	}
	if len(u.o.Server.Resources) > 0 && can.Resources != nil {
		if s.resources, err = all(cs.Resources(ctx, nil), "resources", maxResources); err != nil {
			return nil, err
		}
		s.templates, err = all(cs.ResourceTemplates(ctx, nil), "resource templates", maxResources)
	}
	return s, err
}

// all is a list of a server's, which is too long to be taken beyond most.
func all[T any](list iter.Seq2[*T, error], what string, maximum int) ([]*T, error) {
	var out []*T
	left := int64(maxList)
	for one, err := range list {
		if err != nil {
			return nil, fmt.Errorf("it does not list its %s: %w", what, err)
		}
		if len(out) == maximum {
			return nil, fmt.Errorf("it has more than %d %s", maximum, what)
		}
		if one == nil {
			continue
		}
		// Page by page: there is no end to what a server can say of itself.
		if left -= size(one); left < 0 {
			return nil, fmt.Errorf("it says more than %d MiB of its %s", maxList>>20, what)
		}
		out = append(out, one)
	}
	return out, nil
}

// Prompts and templates are pinned among the tools, by names that no tool that is
// offered can have. Concrete resources are not: what files there are changes all the
// time, and policies bound them by their URIs.
func promptKey(name string) string      { return "prompt " + name }
func templateKey(pattern string) string { return "resource template " + pattern }

// likeTool is a definition in the form that is pinned and reviewed.
func likeTool(key string, definition any) (*sdk.Tool, error) {
	b, err := json.Marshal(definition)
	return &sdk.Tool{Name: key, Description: string(b), InputSchema: map[string]any{"type": "object"}}, err
}

// pinned are the definitions that a pin has.
func (s *survey) pinned() ([]*sdk.Tool, error) {
	out := slices.Clone(s.tools)
	for _, p := range s.prompts {
		t, err := likeTool(promptKey(p.Name), p)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	for _, p := range s.templates {
		t, err := likeTool(templateKey(p.URITemplate), p)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// approved says why a definition is not shown: it differs from what was approved.
func approved(pin *Pin, key string, definition any) (why string) {
	t, err := likeTool(key, definition)
	if err != nil {
		return "its definition cannot be kept"
	}
	now, err := seen(t)
	switch was, ok := pin.Tools[key]; {
	case err != nil:
		return "its definition cannot be kept"
	case !ok:
		return "it is new since the server was approved"
	case was.Digest != now.Digest:
		return "what it says of itself has changed since it was approved"
	}
	return ""
}

// others is what callers get of a server beside tools.
func (u *upstream) others(s *survey, pin *Pin) (out survey, prompts map[string]string, not []hidden) {
	prompts = map[string]string{}
	hide := func(key, why string) { not = append(not, hidden{line(key, 128), why, true}) }
	for _, p := range s.prompts {
		if !matches(u.o.Server.Prompts, p.Name) {
			continue
		}
		if why := approved(pin, promptKey(p.Name), p); why != "" {
			hide(promptKey(p.Name), why)
			continue
		}
		name := u.o.Server.Prefix.V + p.Name
		if !callable().MatchString(name) || prompts[name] != "" {
			continue
		}
		shown := &sdk.Prompt{Name: name, Title: line(p.Title, maxTitle), Description: plain(p.Description, maxDescription)}
		for _, a := range p.Arguments[:min(len(p.Arguments), 100)] {
			if a != nil && len(a.Name) <= maxTitle && a.Name == line(a.Name, maxTitle) {
				shown.Arguments = append(shown.Arguments, &sdk.PromptArgument{Name: a.Name, Title: line(a.Title, maxTitle), Description: plain(a.Description, maxDescription), Required: a.Required})
			}
		}
		prompts[name] = p.Name
		out.prompts = append(out.prompts, shown)
	}
	for _, r := range s.resources {
		if u.readable(r.URI) == "" {
			out.resources = append(out.resources, &sdk.Resource{URI: r.URI, Name: line(r.Name, maxTitle), Title: line(r.Title, maxTitle),
				Description: plain(r.Description, maxDescription), MIMEType: line(r.MIMEType, 128), Size: r.Size})
		}
	}
	for _, r := range s.templates {
		if !matches(u.o.Server.Resources, r.URITemplate) || len(r.URITemplate) > maxURI || r.URITemplate != line(r.URITemplate, maxURI) {
			continue
		}
		if why := approved(pin, templateKey(r.URITemplate), r); why != "" {
			hide(templateKey(r.URITemplate), why)
			continue
		}
		out.templates = append(out.templates, &sdk.ResourceTemplate{URITemplate: r.URITemplate, Name: line(r.Name, maxTitle), Title: line(r.Title, maxTitle),
			Description: plain(r.Description, maxDescription), MIMEType: line(r.MIMEType, 128)})
	}
	return out, prompts, not
}

func matches(patterns []policy.Value[string], s string) bool {
	return slices.ContainsFunc(patterns, func(p policy.Value[string]) bool { return sandbox.Matches(p.V, s) })
}

// readable says why a resource may not be read; "" is that it may. A pattern speaks
// of the URI as it is written, so one that its reader would make another of is
// refused.
func (u *upstream) readable(uri string) string {
	if len(uri) > maxURI || uri != line(uri, maxURI) {
		return "its URI is too long, or has characters that no URI has"
	}
	if !matches(u.o.Server.Resources, uri) {
		return "the policy does not list it"
	}
	for plain := uri; ; {
		for _, part := range strings.FieldsFunc(plain, func(r rune) bool { return strings.ContainsRune(`/\?#:&=`, r) }) {
			if part == ".." || part == "." {
				return "its URI climbs"
			}
		}
		next, err := url.PathUnescape(plain)
		if err != nil {
			return "its URI cannot be read"
		}
		if next == plain {
			return ""
		}
		plain = next
	}
}
