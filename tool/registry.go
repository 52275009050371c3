// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"cmp"
	"maps"
	"slices"

	"github.com/caisson-run/caisson/sandbox"
)

// Registry is a set of tools. The zero value has none: what is not in it cannot
// be called. It does not change and may be used from many goroutines.
type Registry struct{ tools map[string]*Tool }

// NewRegistry makes a registry. Two tools of one name are ErrInvalid.
func NewRegistry(tools ...*Tool) (*Registry, error) {
	r := &Registry{map[string]*Tool{}}
	for _, t := range tools {
		if r.tools[t.Name] != nil {
			return nil, sandbox.Errorf(sandbox.ErrInvalid, "tool "+t.Name, "there are two of this name")
		}
		r.tools[t.Name] = t
	}
	return r, nil
}

// List is all tools, in the order of their names.
func (r *Registry) List() []*Tool {
	return slices.SortedFunc(maps.Values(r.tools), func(a, b *Tool) int { return cmp.Compare(a.Name, b.Name) })
}

// Lookup finds a tool by its name.
func (r *Registry) Lookup(name string) (*Tool, bool) {
	t, ok := r.tools[name]
	return t, ok
}
