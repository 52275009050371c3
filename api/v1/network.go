// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"net/http"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// Network asks for a part of what a policy grants.
type Network struct {
	None  bool     `json:"none,omitempty" doc:"No network at all"`
	Allow []string `json:"allow,omitempty" maxItems:"1000" doc:"Entries of an allow-list, each within the policy's; all of that when it is left out, nothing when it is empty"`
	Deny  []string `json:"deny,omitempty" maxItems:"1000" doc:"Entries that are taken away from it"`
}

func (n *Network) wish() *persistent.NetworkWish {
	return &persistent.NetworkWish{None: n.None || n.Allow != nil && len(n.Allow) == 0, Allow: n.Allow, Deny: n.Deny}
}

// Reach is what a sandbox that lives may reach from now on. The whole of it is said
// anew, and what is not said is nothing.
type Reach struct {
	All   bool     `json:"all,omitempty" doc:"All that the key's policy grants"`
	Allow []string `json:"allow,omitempty" maxItems:"1000" doc:"Instead of all: entries of an allow-list, each within the policy's; nothing when it is empty"`
	Deny  []string `json:"deny,omitempty" maxItems:"1000" doc:"Entries that are taken away from that"`
}

func (r *Reach) wish() (w persistent.NetworkWish, err error) {
	some := len(r.Allow) > 0
	switch {
	case r.All && some:
		return w, &sandbox.Error{Op: "network", Kind: sandbox.ErrInvalid, Problem: "it asks for all and for a part", Hint: "say all, or allow"}
	case len(r.Deny) > 0 && !r.All && !some:
		return w, &sandbox.Error{Op: "network", Kind: sandbox.ErrInvalid, Problem: "there is nothing to take away from", Hint: `say "all": true, or what to allow, beside deny`}
	}
	return persistent.NetworkWish{None: !r.All && !some, Allow: r.Allow, Deny: r.Deny}, nil
}

type reachWish struct {
	SandboxID
	Body Reach
}

// networks registers what changes a network.
func (s *Server) networks() {
	op := operation("PUT", "/sandboxes/{id}/network", "setNetwork",
		"Change what a sandbox may reach, within the key's policy; connections that are not allowed any more are closed when it is answered", http.StatusOK)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *reachWish) (*sandboxAnswer, error) {
		w, err := in.Body.wish()
		if err != nil {
			return nil, err
		}
		b, err := s.o.Sandboxes.Handle(k, in.ID).SetNetwork(ctx, w)
		return answer(http.StatusOK, b, err)
	})
}
