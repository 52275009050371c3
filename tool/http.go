// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// HTTPSpec is a declared request as it is written. In URL and Headers {name} is the
// place of an argument, and in Headers {$NAME} that of a secret.
type HTTPSpec struct {
	Method    string            `json:"method,omitempty"` // GET when empty
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers,omitempty"`
	Body      string            `json:"body,omitempty"`     // json or form: all arguments that have no place elsewhere; empty is none
	Response  int64             `json:"response,omitempty"` // bytes of the answer's body that are read; 0 is DefaultResponse
	Timeout   time.Duration     `json:"timeout,omitempty"`  // of all of it; 0 is DefaultHTTPTimeout
	Redirects int               `json:"redirects,omitempty"`
}

// Bounds of declared requests.
const (
	DefaultResponse    = 256 << 10
	MaxResponse        = 512 << 10
	DefaultHTTPTimeout = 30 * time.Second
	maxRedirects       = 10
	maxURL             = 16 << 10
	maxHeaders         = 64
)

// HTTP is a declared request: where it goes is the declaration's alone, and a value
// stays in its segment of the path, its part of the query or its header.
type HTTP struct {
	spec     HTTPSpec
	base     *url.URL // scheme and host
	path     [][]piece
	query    []pair
	headers  []pair
	placed   map[string]bool // arguments that have a place
	secrets  []string
	endpoint string
}

// pair is a name, which no argument chooses, and its value.
type pair struct {
	name  string
	value []piece
	bare  bool // of a query: no = behind the name
}

// Request is one request that a declared one came to.
type Request struct {
	Method  string
	URL     string
	Headers []Header
	Body    []byte
}

// Header is a header; where a part has a Secret, its text is that secret's value,
// which is not known here.
type Header struct {
	Name  string
	Parts []Part
}

// Part is a text, or the place of a secret.
type Part struct{ Text, Secret string }

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// refusedHeaders are those that say how a message is sent, or to whom.
var refusedHeaders = []string{
	"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive", "proxy-connection", "proxy-authorization", "expect",
	"accept-encoding", "http2-settings",
}

// ParseHTTP reads a declared request. Errors are ErrInvalid.
func ParseHTTP(spec HTTPSpec) (*HTTP, error) {
	h := &HTTP{spec: spec, placed: map[string]bool{}}
	h.spec.Headers = maps.Clone(spec.Headers)
	if h.spec.Method == "" {
		h.spec.Method = "GET"
	}
	if h.spec.Response == 0 {
		h.spec.Response = DefaultResponse
	}
	if h.spec.Timeout == 0 {
		h.spec.Timeout = DefaultHTTPTimeout
	}
	withBody := slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, h.spec.Method)
	switch {
	case !slices.Contains(methods, h.spec.Method):
		return nil, httpError("write one of "+strings.Join(methods, ", "), "its method is none")
	case !slices.Contains([]string{"", "json", "form"}, h.spec.Body):
		return nil, httpError("write json or form, or leave it out", "its body is of no kind that is known")
	case h.spec.Body != "" && !withBody:
		return nil, httpError("write method: POST", h.spec.Method+" has no body")
	case h.spec.Response < 1 || h.spec.Response > MaxResponse:
		return nil, httpError("write 512KiB or less", "its response is longer than an answer may be")
	case h.spec.Timeout < time.Millisecond || h.spec.Timeout > time.Hour:
		return nil, httpError("write up to 1h", "its timeout is too short or too long")
	case h.spec.Redirects < 0 || h.spec.Redirects > maxRedirects:
		return nil, httpError(fmt.Sprintf("write up to %d", maxRedirects), "it follows too many redirects")
	}
	if err := h.readURL(spec.URL); err != nil {
		return nil, err
	}
	return h, h.readHeaders()
}

func httpError(hint, problem string) error {
	return &sandbox.Error{Op: "http", Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
}

// readURL takes the template apart before anything of it is decoded.
func (h *HTTP) readURL(text string) error {
	const hint = "write https://api.example.com/things/{id}?q={query}"
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme != "https" && scheme != "http" {
		return httpError(hint, "its url is not one of https or http")
	}
	if strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '#' || r == '\\' || r == '"' || r == '<' || r == '>'
	}) {
		return httpError(hint, "its url has a fragment, or characters that have to be escaped")
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority, rest := rest[:end], rest[end:]
	base, err := url.Parse(scheme + "://" + authority)
	if strings.ContainsAny(authority, "{}@%") || err != nil || base.Hostname() == "" {
		return httpError(hint, "its host is not one; no argument chooses it, and no name or password stands before it")
	}
	h.base = base
	port := base.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[scheme]
	}
	if h.endpoint = base.Hostname() + ":" + port; strings.Contains(base.Hostname(), ":") {
		h.endpoint = "[" + base.Hostname() + "]:" + port
	}
	path, query, _ := strings.Cut(rest, "?")
	for i, segment := range strings.Split(path, "/") {
		if i == 0 {
			continue
		}
		pieces, err := h.template(segment, false)
		if err != nil {
			return err
		}
		h.path = append(h.path, pieces)
	}
	for _, part := range strings.Split(query, "&") {
		if part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		if strings.ContainsAny(name, "{}") {
			return httpError(hint, "an argument stands in the name of a part of the query")
		}
		pieces, err := h.template(value, false)
		if err != nil {
			return err
		}
		h.query = append(h.query, pair{name, pieces, !ok})
	}
	return nil
}

// template reads a text with places.
func (h *HTTP) template(text string, secrets bool) ([]piece, error) {
	var out []piece
	for text != "" {
		before, rest, found := strings.Cut(text, "{$")
		name, after, closed := strings.Cut(rest, "}")
		if found && (!secrets || !closed || !plainArgument(name)) {
			return nil, httpError("write headers: {Authorization: \"Bearer {$NAME}\"}", "a secret's place is in a header, as {$NAME}")
		}
		pieces, problem := cut(before)
		if problem != "" {
			return nil, httpError("write {name} for an argument, {{ and }} for braces", problem)
		}
		for _, p := range pieces {
			if p.each {
				return nil, httpError("write {"+p.name+"}", "a list has no place in it")
			}
			h.placed[p.name] = h.placed[p.name] || p.name != ""
		}
		if out = append(out, pieces...); !found {
			break
		}
		out = append(out, piece{text: "$" + name, each: true})
		if !slices.Contains(h.secrets, name) {
			h.secrets = append(h.secrets, name)
		}
		text = after
	}
	return out, nil
}

func (h *HTTP) readHeaders() error {
	if len(h.spec.Headers) > maxHeaders {
		return httpError("", "it has too many headers")
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(h.spec.Headers)) {
		lower := strings.ToLower(name)
		switch {
		case name == "" || strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
			return httpError("write names like X-Request-Id", "the name of a header is none")
		case slices.Contains(refusedHeaders, lower) || strings.HasPrefix(lower, "proxy-") || strings.HasPrefix(lower, "sec-"):
			return httpError("drop it", "the header "+name+" is for who sends the message")
		case seen[lower]:
			return httpError("keep one of them", "the header "+name+" is there twice")
		}
		seen[lower] = true
		if i := strings.IndexFunc(h.spec.Headers[name], notInHeader); i >= 0 {
			return httpError("drop it", "the header "+name+" has a control character")
		}
		pieces, err := h.template(h.spec.Headers[name], true)
		if err != nil {
			return err
		}
		h.headers = append(h.headers, pair{name: name, value: pieces})
	}
	if h.spec.Body != "" && seen["content-type"] {
		return httpError("drop it: body says what it is", "the header Content-Type is there, and so is body")
	}
	return nil
}

// notInHeader: what could end a header, and what is not plain text.
func notInHeader(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r > 0x7e }

// Spec is the request as it was written, with what was left out.
func (h *HTTP) Spec() HTTPSpec { return h.spec }

// Endpoint is the only host and port that it asks, HOST:PORT.
func (h *HTTP) Endpoint() string { return h.endpoint }

// Secrets are the names of those that its headers have places for.
func (h *HTTP) Secrets() []string { return slices.Clone(h.secrets) }

// Arguments are the names of the arguments that have places.
func (h *HTTP) Arguments() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(h.placed)), func(name string) bool { return name == "" })
}

// Request puts arguments in their places. A part of the query, and a header, that is
// nothing but an argument that is not given falls away. Errors are ErrInvalid.
func (h *HTTP) Request(args map[string]any) (*Request, error) {
	r := &Request{Method: h.spec.Method}
	var b strings.Builder
	b.WriteString(h.base.Scheme + "://" + h.base.Host)
	for _, segment := range h.path {
		s, err := h.segment(segment, args)
		if err != nil {
			return nil, err
		}
		b.WriteString("/" + s)
	}
	mark := "?"
	for _, q := range h.query {
		s, given, err := fillWith(q.value, args, url.QueryEscape)
		if err != nil {
			return nil, err
		}
		if !given {
			continue
		}
		b.WriteString(mark + q.name)
		if !q.bare {
			b.WriteString("=" + s)
		}
		mark = "&"
	}
	if r.URL = b.String(); len(r.URL) > maxURL {
		return nil, httpError("use shorter arguments", "its url is too long")
	}
	for _, p := range h.headers {
		parts, given, err := headerParts(p.value, args)
		if err != nil {
			return nil, err
		}
		if given {
			r.Headers = append(r.Headers, Header{p.name, parts})
		}
	}
	return r, h.body(r, args)
}

// segment is one segment of the path. A value cannot make it another one, nor the
// one above.
func (h *HTTP) segment(pieces []piece, args map[string]any) (string, error) {
	fixed, whole := true, ""
	for _, p := range pieces {
		if p.name == "" {
			whole += p.text
			continue
		}
		fixed = false
		s, err := valueText(p.name, args[p.name])
		switch {
		case args[p.name] == nil:
			return "", argumentError(p.name, "it is not given")
		case err != nil:
			return "", err
		case strings.ContainsAny(s, "/\\"):
			// Servers differ in whether they take %2F for a slash.
			return "", argumentError(p.name, "it has a slash, and stands in one segment of a path")
		case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return "", argumentError(p.name, "it has a control character")
		}
		whole += s
	}
	s, _, err := fillWith(pieces, args, url.PathEscape)
	if err != nil || fixed {
		return s, err
	}
	// A segment may be decoded once more, and parameters (;x) cut off, before it is
	// looked at.
	plain, _, _ := strings.Cut(whole, ";")
	if again, err := url.PathUnescape(plain); err == nil {
		plain = again
	}
	if plain == "" || plain == "." || plain == ".." || strings.ContainsAny(plain, "/\\") {
		name := ""
		for _, p := range pieces {
			name += p.name
		}
		return "", argumentError(name, "it would make the path another one")
	}
	return s, nil
}

// fillWith puts values in their places, escaped. given is false where all of it is
// an argument that is not there.
func fillWith(pieces []piece, args map[string]any, escape func(string) string) (s string, given bool, err error) {
	if len(pieces) == 1 && pieces[0].name != "" && args[pieces[0].name] == nil {
		return "", false, nil
	}
	var b strings.Builder
	for _, p := range pieces {
		if p.name == "" {
			b.WriteString(p.text)
			continue
		}
		v, err := fill([]piece{p}, args)
		if err != nil {
			return "", false, err
		}
		b.WriteString(escape(v))
	}
	return b.String(), true, nil
}

func headerParts(pieces []piece, args map[string]any) (parts []Part, given bool, err error) {
	if len(pieces) == 1 && pieces[0].name != "" && args[pieces[0].name] == nil {
		return nil, false, nil
	}
	for _, p := range pieces {
		if secret, ok := strings.CutPrefix(p.text, "$"); ok && p.each {
			parts = append(parts, Part{Secret: secret})
			continue
		}
		s := p.text
		if p.name != "" {
			if s, err = fill([]piece{p}, args); err != nil {
				return nil, false, err
			}
			if strings.ContainsFunc(s, notInHeader) {
				return nil, false, argumentError(p.name, "it stands in a header, and has a line break, or a character that is not plain ASCII")
			}
		}
		parts = append(parts, Part{Text: s})
	}
	return parts, true, nil
}

// body is made of the arguments that have no place elsewhere.
func (h *HTTP) body(r *Request, args map[string]any) error {
	rest := map[string]any{}
	for name, v := range args {
		if !h.placed[name] {
			rest[name] = v
		}
	}
	kind := "application/json"
	switch h.spec.Body {
	case "json":
		b, err := json.Marshal(rest)
		if err != nil {
			return httpError("", "its arguments cannot be written as JSON")
		}
		r.Body = b
	case "form":
		form := url.Values{}
		for name, v := range rest {
			s, err := valueText(name, v)
			if err != nil {
				return err
			}
			form.Set(name, s)
		}
		r.Body, kind = []byte(form.Encode()), "application/x-www-form-urlencoded"
	default:
		return nil
	}
	r.Headers = append(r.Headers, Header{"Content-Type", []Part{{Text: kind}}})
	return nil
}

// HTTPOutput is the schema of what a declared request answers with.
func HTTPOutput() json.RawMessage {
	return json.RawMessage(`{"type":"object","required":["status","body","encoding"],"properties":{` +
		`"status":{"type":"integer","description":"HTTP status."},` +
		`"headers":{"type":"object","additionalProperties":{"type":"string"},"description":"Some headers of the answer, in small letters."},` +
		`"body":{"type":"string"},"encoding":{"enum":["text","base64"]},` +
		`"truncated":{"type":"boolean","description":"The body is longer."}}}`)
}
