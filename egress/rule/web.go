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
	// MaxRequests is how many requests it lets through in the life of one router; 0 is no
	// bound.
	MaxRequests int64
	// Closed says that no entry of a policy's would let through more.
	Closed bool
}

// IsZero reports whether w says nothing of requests.
func (w Web) IsZero() bool {
	return len(w.Methods) == 0 && len(w.Paths) == 0 && w.MaxBody == 0 && w.MaxRequests == 0
}

// conditions are a Web that was read.
type conditions struct {
	methods []string
	paths   []PathPattern
	maxBody int64
	// maxRequests is counted by key, which names an entry also where rules are changed.
	maxRequests int64
	key         string
	closed      bool
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
		return Rule{}, errors.New("methods, paths, max_body and max_requests go with a host or *.host")
	}
	if r.web, err = w.read(); err == nil {
		r.web.key = fmt.Sprintf("%q %q %q %q", text, from, w.Methods, w.Paths)
	}
	return r, err
}

func (w Web) read() (*conditions, error) {
	if w.IsZero() {
		return nil, errors.New("there are no methods, paths, max_body or max_requests")
	}
	if len(w.Methods) > maxMethods || len(w.Paths) > maxPaths || w.MaxBody < 0 || w.MaxRequests < 0 {
		return nil, fmt.Errorf("an entry has at most %d methods and %d paths", maxMethods, maxPaths)
	}
	c := &conditions{methods: slices.Clone(w.Methods), maxBody: w.MaxBody, maxRequests: w.MaxRequests, closed: w.Closed}
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

// Bounds are what holds for a request that may be made.
type Bounds struct {
	Body int64 // of its body, in bytes; 0 is no bound
	// Counts are the entries that let it through and count requests.
	Counts []Count
}

// Count is an entry that lets through Max requests. Key is the same for the same entry of
// other rules.
type Count struct {
	Key        string
	Max        int64
	Rule, From string
}

// Request says whether a request to n at port may be made, whose connection is
// allowed. In each layer that says something of the host one entry must let it
// through.
func (l *List) Request(n Name, port uint16, q Request) (d Decision, b Bounds) {
	if d = l.Name(n, port); !d.Allow {
		return d, Bounds{}
	}
	for _, layer := range l.Web {
		rules := about(layer, n, port)
		if len(rules) == 0 {
			continue
		}
		one, by := judge(rules, q)
		if !one.Allow {
			return one, Bounds{}
		}
		d = one
		if bound := by.maxBody; bound > 0 && (b.Body == 0 || bound < b.Body) {
			b.Body = bound
		}
		if by.maxRequests > 0 {
			b.Counts = append(b.Counts, Count{Key: by.key, Max: by.maxRequests, Rule: d.Rule, From: d.From})
		}
	}
	return d, b
}

// judge asks the rules of one layer. Of those that let the request through the most
// generous is by, which bounds it: first one that does not count requests, then the one
// with the longest body. Where none does, the one that came closest says why.
func judge(rules []Rule, q Request) (d Decision, by *conditions) {
	segments, odd := Segments(q.Path)
	closest := -1
	for _, r := range rules {
		reason, met := r.web.against(q, segments, odd)
		switch {
		case reason != "" && !d.Allow && met > closest:
			d, closest = denied(r, reason), met
			d.Open = odd == nil && !r.web.closed
		case reason == "" && (by == nil || r.web.wider(by)):
			d, by = allowed(r), r.web
		}
	}
	return d, by
}

// wider reports whether c bounds a request that both let through less than o does.
func (c *conditions) wider(o *conditions) bool {
	more := func(a, b int64) bool { return b != 0 && (a == 0 || a > b) }
	if c.maxRequests != o.maxRequests {
		return more(c.maxRequests, o.maxRequests)
	}
	return more(c.maxBody, o.maxBody)
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
	case c.maxRequests > 0 && q.Upgrade:
		return "an upgrade has no requests that max_requests could count", 2
	case c.maxBody > 0 && q.Length > c.maxBody:
		return TooLong(c.maxBody), 2
	}
	return "", 3
}

// TooLong is the reason to refuse a body of more than most bytes.
func TooLong(maximum int64) string {
	return fmt.Sprintf("the body of the request has more than %d bytes", maximum)
}

// Spent is the reason to refuse a request after so many.
func Spent(maximum int64) string {
	return fmt.Sprintf("its budget of %d requests is used up (max_requests)", maximum)
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
