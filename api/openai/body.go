// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool/params"
)

const (
	// maxBody bounds a request in JSON, in bytes.
	maxBody = params.MaxText
	// bodyTimeout is how long it may take to arrive.
	bodyTimeout = 30 * time.Second
)

// object is a JSON object of a request, at a path.
type object struct {
	at string
	m  map[string]any
}

// body reads a request's JSON object, which readers of JSON all take alike.
func (c *call) body() (*object, error) {
	if err := mediaType(c.r, "application/json"); err != nil {
		return nil, err
	}
	in := &api.Message{ReadCloser: api.LimitJSON(c.held.Body(c.r.Body)), Control: c.control, Timeout: bodyTimeout}
	b, err := io.ReadAll(http.MaxBytesReader(c.w, in, maxBody))
	if f := asFault(err); err != nil && f.Status != http.StatusInternalServerError {
		return nil, f
	}
	if err != nil {
		return nil, wrong("", "invalid_json", "the request cannot be read")
	}
	v, err := params.Read(b)
	if err != nil {
		f := asFault(err)
		f.Code, f.Message = "invalid_json", "the request is not JSON that is taken here: "+f.Message
		return nil, f
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, wrong("", "invalid_json", "the request is no JSON object")
	}
	return &object{"", m}, nil
}

// mediaType refuses a body of another type than want.
func mediaType(r *http.Request, want string) error {
	if have, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && have == want {
		return nil
	}
	return &fault{Status: http.StatusUnsupportedMediaType, Kind: kindRequest, Code: "unsupported_media_type", Message: "the body is not " + want}
}

// carried refuses fields that are not among names, unless they are null: a
// client that asks for something must not believe that it has it.
func (o *object) carried(names ...string) error {
	var not []string
	for name, v := range o.m {
		if v != nil && !slices.Contains(names, name) {
			not = append(not, o.at+name)
		}
	}
	if len(not) == 0 {
		return nil
	}
	slices.Sort(not)
	return wrong(not[0], "unsupported_parameter", api.Quoted(strings.Join(not, ", "))+" is not carried by this server, and nothing is made that lacks what was asked for; see docs/openai.md")
}

func (o *object) wrong(name, message string) error {
	return wrong(o.at+name, "invalid_value", o.at+name+": "+message)
}

// text is a field of at most most bytes; "" when it is not there.
func (o *object) text(name string, maximum int) (string, error) {
	switch v := o.m[name].(type) {
	case nil:
		return "", nil
	case string:
		if len(v) > maximum {
			return "", o.wrong(name, "it is longer than "+strconv.Itoa(maximum)+" bytes")
		}
		return v, nil
	}
	return "", o.wrong(name, "it is no text")
}

// number is a whole number from low to high; 0 when it is not there.
func (o *object) number(name string, low, high int) (int, error) {
	v := o.m[name]
	if v == nil {
		return 0, nil
	}
	n, err := strconv.Atoi(string(asNumber(v)))
	if err != nil || n < low || n > high {
		return 0, o.wrong(name, "it is no whole number from "+strconv.Itoa(low)+" to "+strconv.Itoa(high))
	}
	return n, nil
}

func asNumber(v any) json.Number {
	n, _ := v.(json.Number)
	return n
}

// texts is a list of at most most texts.
func (o *object) texts(name string, maximum int) ([]string, error) {
	if o.m[name] == nil {
		return nil, nil
	}
	list, ok := o.m[name].([]any)
	if !ok || len(list) > maximum {
		return nil, o.wrong(name, "it is no list of at most "+strconv.Itoa(maximum))
	}
	out := make([]string, 0, len(list))
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil, o.wrong(name, "an element is no text")
		}
		out = append(out, s)
	}
	return out, nil
}

// object is an object; nil when it is not there.
func (o *object) object(name string) (*object, error) {
	switch v := o.m[name].(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return &object{o.at + name + ".", v}, nil
	}
	return nil, o.wrong(name, "it is no object")
}

// page is which part of a list is wanted.
type page struct {
	after string
	limit int
	asc   bool
	name  string
}

const (
	usualPage = 20
	maxPage   = 100
)

// page reads a list's query; more names what it may have besides.
func (c *call) page(more ...string) (*page, error) {
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, wrong("", "invalid_value", "the query cannot be read")
	}
	p := &page{limit: usualPage}
	for name, values := range q {
		if len(values) != 1 {
			return nil, wrong(name, "invalid_value", api.Quoted(name)+" is there more than once")
		}
		v := values[0]
		switch {
		case name == "after":
			p.after = v
		case name == "limit":
			if p.limit, err = strconv.Atoi(v); err != nil || p.limit < 1 || p.limit > maxPage {
				return nil, wrong(name, "invalid_value", "limit: it is no whole number from 1 to "+strconv.Itoa(maxPage))
			}
		case name == "order" && (v == "asc" || v == "desc"):
			p.asc = v == "asc"
		case name == "order":
			return nil, wrong(name, "invalid_value", "order: it is neither asc nor desc")
		case slices.Contains(more, name) && name == "name":
			p.name = v
		default:
			return nil, wrong(name, "unsupported_parameter", api.Quoted(name)+" is not carried by this server")
		}
	}
	return p, nil
}

// noQuery refuses a query where none means anything.
func (c *call) noQuery() error {
	if c.r.URL.RawQuery == "" {
		return nil
	}
	return wrong("", "unsupported_parameter", "this request has no query")
}

// listed is one page of a list.
type listed[T any] struct {
	Object  string  `json:"object"`
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

// notFound is the answer for what is not there, or is another key's.
func notFound(what, id string, err error) error {
	f := asFault(sandbox.Errorf(sandbox.ErrNotFound, what+" "+api.Quoted(id), "there is none"))
	if err != nil {
		f = asFault(err)
	}
	return f
}
