// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/session/persistent"
)

// allTraffic is how E2B's clients write "everything" in a list of what is denied.
const allTraffic = "0.0.0.0/0"

// networkBody is E2B's network object. Fields that are not carried are known by
// name, so that what they say can be looked at.
type networkBody struct {
	AllowOut           []string        `json:"allowOut,omitempty"`
	DenyOut            []string        `json:"denyOut,omitempty"`
	AllowPublicTraffic *bool           `json:"allowPublicTraffic,omitempty"`
	MaskRequestHost    string          `json:"maskRequestHost,omitempty"`
	Rules              json.RawMessage `json:"rules,omitempty"`
	EgressProxy        json.RawMessage `json:"egressProxy,omitempty"`
	HTTPSPorts         json.RawMessage `json:"httpsPorts,omitempty"`

	// Internet is beside the others in an update.
	Internet *bool `json:"allow_internet_access,omitempty"`
}

// wish reads the way out of n. A wish that this server cannot carry exactly is
// refused, never rounded.
func (n *networkBody) wish() (*persistent.NetworkWish, error) {
	bad := func(s string) (*persistent.NetworkWish, error) { return nil, &apiError{http.StatusBadRequest, s} }
	for _, f := range []struct {
		name string
		raw  json.RawMessage
	}{{"network.egressProxy", n.EgressProxy}, {"network.httpsPorts", n.HTTPSPorts}} {
		if len(f.raw) > 0 && !asksNothing(f.raw) {
			return nil, notCarried(f.name)
		}
	}
	set, err := headers(n.Rules)
	if err != nil {
		return nil, err
	}
	w := &persistent.NetworkWish{Headers: set}
	denyAll := n.Internet != nil && !*n.Internet
	for _, d := range n.DenyOut {
		switch p, err := prefix(d); {
		case err != nil:
			return bad("denyOut takes addresses and ranges, not " + api.Quoted(d))
		case p.Bits() == 0:
			denyAll = true
		default:
			w.Deny = append(w.Deny, p.String())
		}
	}
	for _, a := range n.AllowOut {
		if p, err := prefix(a); err == nil {
			w.Allow = append(w.Allow, everyPort(p))
			continue
		}
		if !denyAll {
			return bad("allowOut has the domain " + api.Quoted(a) + "; when it has domains, denyOut must have " + allTraffic)
		}
		if strings.ContainsAny(a, ":/") {
			return bad("allowOut takes domains, addresses and ranges, not " + api.Quoted(a))
		}
		w.Allow = append(w.Allow, a)
	}
	switch {
	case denyAll:
		// What is allowed beats what is denied, and everything is denied.
		w.Deny, w.None = nil, len(w.Allow) == 0
	case len(w.Allow) > 0:
		return bad("allowOut narrows nothing without denyOut: [\"" + allTraffic + "\"], and exceptions from single ranges of denyOut are not carried")
	}
	return w, nil
}

// setNetwork changes what a sandbox may reach while it lives. The whole of it is
// said anew: what is left out is as if nothing had ever been said of it.
func (s *Server) setNetwork(w http.ResponseWriter, r *http.Request, k *persistent.Key) error {
	var q struct {
		AllowOut    []string        `json:"allowOut"`
		DenyOut     []string        `json:"denyOut"`
		Rules       json.RawMessage `json:"rules"`
		EgressProxy json.RawMessage `json:"egressProxy"`
		Internet    *bool           `json:"allow_internet_access"`
		Public      *bool           `json:"allowPublicTraffic"`
	}
	if err := readBody(w, r, &q, false); err != nil {
		return err
	}
	if q.Public != nil && !*q.Public {
		return notCarried("allowPublicTraffic: false") // who comes in is settled when it is made
	}
	n := networkBody{AllowOut: q.AllowOut, DenyOut: q.DenyOut, Rules: q.Rules, EgressProxy: q.EgressProxy, Internet: q.Internet}
	wish, err := n.wish()
	if err != nil {
		return err
	}
	_, err = s.o.Sandboxes.Handle(k, pathID(r)).SetNetwork(r.Context(), *wish)
	return noContent(w, err)
}

// everyPort is the entry for all ports of a range.
func everyPort(p netip.Prefix) string {
	switch {
	case p.Bits() == 0:
		return "internet"
	case p.Addr().Is6():
		return "[" + p.String() + "]:*"
	}
	return p.String() + ":*"
}

// prefix reads an address or a range of addresses.
func prefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return a.Prefix(a.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err
}
