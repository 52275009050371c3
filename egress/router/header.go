// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
)

// A client may ask for headers in the requests of its sandbox. They are set before a
// request is judged, as if a program had sent them: they reach nothing that a program
// could not reach, and a secret's host gets no other credential by them.

// headersOf are the headers that requests to one host, or the hosts below it, get.
type headersOf struct {
	host   rule.Rule
	values map[string]string // by canonical names
}

// Headers are those of all hosts.
type Headers []headersOf

// NewHeaders reads what the owner sent.
func NewHeaders(list []wire.Header) (Headers, error) {
	var out Headers
	for _, h := range list {
		r, err := rule.ParseHeaderHost(h.Host)
		if err == nil {
			err = rule.CheckHeader(h.Name, string(h.Value))
		}
		if err != nil {
			return nil, fmt.Errorf("a header for %q: %w", h.Host, err)
		}
		at := slices.IndexFunc(out, func(o headersOf) bool { return o.host == r })
		if at < 0 {
			at, out = len(out), append(out, headersOf{r, map[string]string{}})
		}
		out[at].values[http.CanonicalHeaderKey(h.Name)] = string(h.Value)
	}
	return out, nil
}

// hosts are the hosts whose requests Set wants to see.
func (l Headers) hosts() (all []rule.Rule) {
	for _, h := range l {
		all = append(all, h.host)
	}
	return all
}

// of are the headers for one host: those of the longest name. Others are not added.
func (l Headers) of(n rule.Name, port uint16) map[string]string {
	var best *headersOf
	for i := range l {
		h := &l[i]
		if h.host.Matches(n, port) && (best == nil || len(h.host.Base().String()) > len(best.host.Base().String())) {
			best = h
		}
	}
	if best == nil {
		return nil
	}
	return best.values
}

// Set sets the headers of a request to a host, but for those that secrets go into there.
// One of the same name that the program sent is taken out.
func (l Headers) Set(n rule.Name, port uint16, secrets Secrets, h http.Header) {
	var set bool
	for name, value := range l.of(n, port) {
		plain := plainName(name)
		if slices.ContainsFunc(secrets, func(s *Secret) bool { return plainName(s.header) == plain && s.at(n) }) {
			continue
		}
		for key := range h {
			if plainName(key) == plain {
				delete(h, key)
			}
		}
		h[name], set = []string{value}, true
	}
	// A program could name one here, and have it taken out again (RFC 9110, 7.6.1).
	if set && h.Get("Upgrade") != "" {
		h.Set("Connection", "Upgrade")
	} else if set && !strings.EqualFold(h.Get("Connection"), "close") {
		h.Del("Connection")
	}
}

// at reports whether a host, on any port, is one of those that s goes to.
func (c *Secret) at(n rule.Name) bool {
	return slices.ContainsFunc(c.hosts, func(r rule.Rule) bool { return r.AnyPort().Matches(n, 1) })
}
