// SPDX-License-Identifier: Apache-2.0

package params

import (
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A schema can say the same thing twice of every value, and each of these twice
// again: the checks double with every step, and with recursion with every level
// of the value. So the most checks that one value can cost is counted before a
// schema is used: schemas about the value itself add up; of those about what is
// in it, one property counts, the dearest, and all that are about any child;
// maxDepth levels down.

type costs struct {
	known map[place]int
	open  map[place]bool
	seen  map[*jsonschema.Schema]bool
}

type place struct {
	schema *jsonschema.Schema
	levels int // of the value below
}

var errLoop = errors.New("it refers to itself without end")

// affordable refuses schemas whose checks take long.
func affordable(s *jsonschema.Schema) error {
	c := &costs{map[place]int{}, map[place]bool{}, map[*jsonschema.Schema]bool{}}
	n, err := c.of(s, maxDepth)
	if err != nil {
		return err
	}
	if n > maxWorth {
		return fmt.Errorf("checking one value with it could take more than %d steps", maxWorth)
	}
	return nil
}

// of is the most checks that a value with that many levels costs, at most
// maxWorth + 1.
func (c *costs) of(s *jsonschema.Schema, levels int) (int, error) {
	if s == nil || s.Bool != nil || levels < 0 {
		return 0, nil
	}
	p := place{s, levels}
	if n, ok := c.known[p]; ok {
		return n, nil
	}
	if c.open[p] {
		return 0, errLoop
	}
	if c.seen[s] = true; len(c.seen) > maxSchemas {
		return 0, fmt.Errorf("it has more than %d schemas", maxSchemas)
	}
	c.open[p] = true
	defer delete(c.open, p)
	total := 1 + len(s.Required) + len(s.PatternProperties)
	if s.Enum != nil {
		total += len(s.Enum.Values)
	}
	sum := func(levels int, of ...*jsonschema.Schema) error {
		for _, sub := range of {
			n, err := c.of(sub, levels)
			if err != nil {
				return err
			}
			total = min(total+n, maxWorth+1)
		}
		return nil
	}
	itself, children := inPlace(s), anyChild(s)
	if err := sum(levels, itself...); err != nil {
		return 0, err
	}
	if err := sum(levels-1, children...); err != nil {
		return 0, err
	}
	dearest := 0
	for _, sub := range s.Properties {
		n, err := c.of(sub, levels-1)
		if err != nil {
			return 0, err
		}
		dearest = max(dearest, n)
	}
	total = min(total+dearest, maxWorth+1)
	c.known[p] = total
	return total, nil
}

// inPlace are the schemas that s has about the value itself.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}
	if s.DynamicRef != nil {
		out = append(out, s.DynamicRef.Ref)
	}
	out = append(append(append(out, s.AllOf...), s.AnyOf...), s.OneOf...)
	for _, sub := range s.DependentSchemas {
		out = append(out, sub)
	}
	return out
}

// anyChild are those about any value within it.
func anyChild(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{s.PropertyNames, s.Items2020, s.Contains, s.UnevaluatedItems, s.UnevaluatedProperties}
	out = append(out, s.PrefixItems...)
	if sub, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
		out = append(out, sub)
	}
	for _, sub := range s.PatternProperties {
		out = append(out, sub)
	}
	return out
}
