// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Web is what an entry says of the requests to its hosts, as it was written.
// The zero Web says nothing.
type Web struct {
	Methods []string // GET lets HEAD through, too; none is every method
	Paths   []string // see PathPattern; none is every path
	MaxBody int64    // of a request, in bytes; 0 is no bound
}

// IsZero reports whether w says nothing of requests.
func (w Web) IsZero() bool { return len(w.Methods) == 0 && len(w.Paths) == 0 && w.MaxBody == 0 }

// conditions are a Web that was read.
type conditions struct {
	methods []string
	paths   []PathPattern
	maxBody int64
}

// Bounds of one entry.
const (
	maxMethods = 32
	maxPaths   = 256
)

// AllowWeb reads an entry of an allow-list that says something of requests. It
// names a host or all hosts below a name: a range of addresses has no name that a
// request could be held to.
func AllowWeb(text, from string, w Web) (Rule, error) {
	r, err := parse(text, from, webPorts)
	if err != nil {
		return Rule{}, err
	}
	if err := r.checkLocal(); err != nil {
		return Rule{}, err
	}
	if r.host.IsZero() {
		return Rule{}, errors.New("methods, paths and max_body go with a host or *.host")
	}
	r.web, err = w.read()
	return r, err
}

func (w Web) read() (*conditions, error) {
	if w.IsZero() {
		return nil, errors.New("there are no methods, paths or max_body")
	}
	if len(w.Methods) > maxMethods || len(w.Paths) > maxPaths || w.MaxBody < 0 {
		return nil, fmt.Errorf("an entry has at most %d methods and %d paths", maxMethods, maxPaths)
	}
	c := &conditions{methods: slices.Clone(w.Methods), maxBody: w.MaxBody}
	for _, m := range w.Methods {
		if err := checkMethod(m); err != nil {
			return nil, err
		}
	}
	for _, p := range w.Paths {
		pattern, err := ParsePath(p)
		if err != nil {
			return nil, err
		}
		c.paths = append(c.paths, pattern)
	}
	return c, nil
}

// checkMethod takes what servers know as methods: upper case, since theirs are
// told apart by it (RFC 9110, 9.1).
func checkMethod(m string) error {
	switch {
	case m == "" || len(m) > 32 || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "":
		return fmt.Errorf("%q is no method; methods are GET, POST and so on", m)
	case m == "CONNECT":
		return errors.New("CONNECT is a tunnel, which nothing allows")
	}
	return nil
}

// Request is what a list judges of one request.
type Request struct {
	Method  string
	Path    string // as it is on the wire, without a query
	Length  int64  // of the body, in bytes; -1 when it is not said
	Upgrade bool   // what follows is no HTTP any more
}

// Inspected reports whether requests to n at port are judged one by one.
func (l *List) Inspected(n Name, port uint16) bool {
	if l == nil || n.IsZero() {
		return false
	}
	return slices.ContainsFunc(l.Web, func(layer []Rule) bool { return len(about(layer, n, port)) > 0 }) ||
		slices.ContainsFunc(l.Ended, func(r Rule) bool { return r.Matches(n, port) })
}

// Matches reports whether r is about n at port.
func (r Rule) Matches(n Name, port uint16) bool { return r.host.Match(n) && r.ports.has(port) }

// Base is the name that r's host is, or that its hosts are below; the zero Name
// when r is about addresses.
func (r Rule) Base() Name { return r.host.Base() }

// about are the rules of a layer that say something of requests to n at port.
func about(layer []Rule, n Name, port uint16) []Rule {
	var out []Rule
	for _, r := range layer {
		if r.web != nil && r.Matches(n, port) {
			out = append(out, r)
		}
	}
	return out
}

// Request says whether a request to n at port may be made, whose connection is
// allowed. In each layer that says something of the host one entry must let it
// through. most bounds its body, in bytes; 0 is no bound.
func (l *List) Request(n Name, port uint16, q Request) (d Decision, maxBody int64) {
	if d = l.Name(n, port); !d.Allow {
		return d, 0
	}
	for _, layer := range l.Web {
		rules := about(layer, n, port)
		if len(rules) == 0 {
			continue
		}
		one, bound := judge(rules, q)
		if !one.Allow {
			return one, 0
		}
		d = one
		if bound > 0 && (maxBody == 0 || bound < maxBody) {
			maxBody = bound
		}
	}
	return d, maxBody
}

// judge asks the rules of one layer. Of those that let the request through the
// most generous bounds the body; where none does, the one that came closest says
// why.
func judge(rules []Rule, q Request) (d Decision, maxBody int64) {
	segments, odd := Segments(q.Path)
	closest := -1
	for _, r := range rules {
		reason, met := r.web.against(q, segments, odd)
		switch {
		case reason != "" && !d.Allow && met > closest:
			d, closest = denied(r, reason), met
			d.Open = odd == nil
		case reason == "" && (!d.Allow || maxBody != 0 && (r.web.maxBody == 0 || r.web.maxBody > maxBody)):
			d, maxBody = allowed(r), r.web.maxBody
		}
	}
	return d, maxBody
}

// against says why c is against a request, and how much of c it met; "" when it
// is not.
func (c *conditions) against(q Request, segments []string, odd error) (reason string, met int) {
	if len(c.methods) > 0 && !slices.Contains(c.methods, q.Method) && (q.Method != "HEAD" || !slices.Contains(c.methods, "GET")) {
		return fmt.Sprintf("the method %q is not one of %s", q.Method, strings.Join(c.methods, " ")), 0
	}
	if len(c.paths) > 0 {
		if odd != nil {
			return odd.Error(), 1
		}
		if !slices.ContainsFunc(c.paths, func(p PathPattern) bool { return p.Match(segments) }) {
			return "the path is not among those that are allowed", 1
		}
	}
	switch {
	case c.maxBody > 0 && q.Upgrade:
		return "an upgrade has no end that max_body could bound", 2
	case c.maxBody > 0 && q.Length > c.maxBody:
		return TooLong(c.maxBody), 2
	}
	return "", 3
}

// TooLong is the reason to refuse a body of more than most bytes.
func TooLong(maximum int64) string {
	return fmt.Sprintf("the body of the request has more than %d bytes", maximum)
}

// Conditional says which parts of a request the rules about it look at, so that
// headers by which a server may be told something else are refused.
func (l *List) Conditional(n Name, port uint16) (methods, paths bool) {
	if l == nil {
		return false, false
	}
	for _, layer := range l.Web {
		for _, r := range about(layer, n, port) {
			methods = methods || len(r.web.methods) > 0
			paths = paths || len(r.web.paths) > 0
		}
	}
	return methods, paths
}
