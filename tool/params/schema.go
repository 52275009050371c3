// SPDX-License-Identifier: Apache-2.0

package params

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool/params/drafts"
)

// More bounds of a schema, which may come from an untrusted server.
const (
	maxFaults   = 50     // reported
	maxProblem  = 1000   // bytes of what one says
	maxSchemas  = 5_000  // schemas within a schema
	maxWorth    = 10_000 // checks that one value may cost; see cost.go
	schemaPlace = "mem:///schema.json"
)

// Schema is a JSON Schema of draft 2020-12. It does not change and may be used
// from many goroutines.
type Schema struct {
	compiled *jsonschema.Schema
	patterns *patterns
}

// Compile reads a schema. References lead nowhere but into it, formats are
// asserted, and one whose checking could take long is refused. Errors are
// ErrInvalid.
func Compile(src []byte) (*Schema, error) {
	refuse := func(format string, args ...any) (*Schema, error) {
		return nil, &sandbox.Error{Op: "schema", Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf(format, args...)}
	}
	if len(src) > MaxSchema {
		return refuse("it is longer than %d KiB", MaxSchema>>10)
	}
	// Read first: it bounds depth, and a name that is there twice means one thing
	// to us and another to the program that shows the schema.
	if _, err := read(src, true); err != nil {
		var e *sandbox.Error
		errors.As(err, &e)
		return refuse("%s: %s", e.Op, e.Problem)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(src))
	if err != nil {
		return refuse("it is not JSON")
	}
	drafts.Ready()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nowhere{})
	c.AssertFormat()
	p := &patterns{}
	c.UseRegexpEngine(p.engine)
	if err := c.AddResource(schemaPlace, doc); err != nil {
		return refuse("%v", err)
	}
	compiled, err := c.Compile(schemaPlace)
	if err != nil {
		return refuse("%s", clip(strings.ReplaceAll(err.Error(), schemaPlace, "")))
	}
	if compiled.DraftVersion != 2020 {
		return refuse("it is not of draft 2020-12")
	}
	if err := affordable(compiled); err != nil {
		return refuse("%v", err)
	}
	p.done = true
	return &Schema{compiled, p}, nil
}

// nowhere loads nothing: the draft's own schemas are in the library.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %q, and nothing outside of a schema is read", url)
}

// Check returns what in v, which [Read] gave, does not fit; nil when all does.
// Faults are sorted by path; of very many the first 50 are kept.
func (s *Schema) Check(v any) []Fault {
	err := s.validate(v)
	if err == nil {
		return nil
	}
	var ve *jsonschema.ValidationError
	if !errors.As(err, &ve) {
		return []Fault{{"", clip(err.Error())}}
	}
	var out []Fault
	var walk func(o *jsonschema.OutputUnit)
	walk = func(o *jsonschema.OutputUnit) {
		if len(o.Errors) == 0 && o.Error != nil {
			out = append(out, Fault{o.InstanceLocation, clip(o.Error.String())})
		}
		for i := range o.Errors {
			walk(&o.Errors[i])
		}
	}
	walk(ve.DetailedOutput())
	slices.SortStableFunc(out, func(a, b Fault) int { return strings.Compare(a.Path, b.Path) })
	out = slices.Compact(out)
	return out[:min(len(out), maxFaults)]
}

// validate is one check at a time: what its patterns take together is counted.
func (s *Schema) validate(v any) (err error) {
	s.patterns.mu.Lock()
	defer s.patterns.mu.Unlock()
	s.patterns.left = maxSteps
	defer func() {
		if p := recover(); p == errSteps {
			err = errSteps
		} else if p != nil {
			panic(p)
		}
	}()
	return s.compiled.Validate(v)
}

// clip shortens what a fault says, which may repeat the value or the schema: what is
// wrong with it stands before or behind that.
func clip(s string) string {
	if len(s) <= maxProblem {
		return s
	}
	return strings.ToValidUTF8(s[:maxProblem/2]+"…"+s[len(s)-maxProblem/2:], "")
}
