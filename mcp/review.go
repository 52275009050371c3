// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-run/caisson/sandbox"
)

// Review is what a server offers now beside what was approved of it.
type Review struct {
	Server string
	Now    *Pin
	Was    *Pin // nil: it was never seen
	// Tools are all of both, by name.
	Tools []ToolReview
}

// ToolReview is one tool of a Review.
type ToolReview struct {
	Name string
	// State is approved, changed, new or gone.
	State string
	// Now and Was are its definitions, with plain texts; nil where there is none.
	Now, Was *sdk.Tool
	// Hidden is why callers do not get it, whatever was approved; empty when
	// they do.
	Hidden string
}

// Review starts each server, asks it for its tools, and ends it. Nothing is
// approved by that.
func (g *Gateway) Review(ctx context.Context) ([]*Review, error) {
	var out []*Review
	for _, u := range g.upstreams {
		r, err := u.review(ctx)
		if errors.Is(err, errUnready) {
			return nil, &sandbox.Error{Op: "server " + u.o.Name, Kind: sandbox.ErrUnavailable, Problem: line(err.Error(), 500), Hint: cmp.Or(sandbox.Hint(err), u.o.Advice, "see that the command is an MCP server, and that what it reads is shown to it")}
		}
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func (u *upstream) review(ctx context.Context) (*Review, error) {
	r := &Review{Server: u.o.Name}
	listed := false
	err := u.live(ctx, func(ctx context.Context, cs *sdk.ClientSession) error {
		said, err := u.survey(ctx, cs)
		var pinned []*sdk.Tool
		if err == nil {
			pinned, err = said.pinned()
		}
		if err == nil {
			r.Now, err = u.pinOf(pinned, time.Now())
		}
		if err == nil {
			r.Was, err = u.g.o.Pins.Read(u.o.Name, u.o.Image, u.o.Call.Argv)
		}
		if err == nil {
			_, not := u.catalog(said.tools, r.Now)
			r.compare(not)
			listed = true
		}
		return err
	})
	if listed { // how it ended then is its own affair
		return r, nil
	}
	return nil, err
}

func (r *Review) compare(not []hidden) {
	was := map[string]ToolSeen{}
	if r.Was != nil {
		was = r.Was.Tools
	}
	names := slices.Collect(maps.Keys(r.Now.Tools))
	for name := range was {
		if _, ok := r.Now.Tools[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		now, here := r.Now.Tools[name]
		before, known := was[name]
		t := ToolReview{Name: line(name, 128), State: "approved"}
		switch {
		case !here:
			t.State = "gone"
		case !known:
			t.State = "new"
		case now.Digest != before.Digest:
			t.State = "changed"
		}
		if here {
			t.Now, _ = clean(now.Definition)
		}
		if known {
			t.Was, _ = clean(before.Definition)
		}
		for _, h := range not {
			if h.Name == t.Name {
				t.Hidden = h.Why
			}
		}
		r.Tools = append(r.Tools, t)
	}
}

// Approve approves what a review saw, and nothing that came since.
func (g *Gateway) Approve(r *Review) error { return g.o.Pins.Approve(r.Now) }
