// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Params is what a JSON Schema says of the types of arguments. What it leaves
// open, or says in a way that is not followed here ($ref, several types), has any
// type, and is looked at when a condition is evaluated. A nil Params leaves
// everything open.
type Params struct {
	root *shape

	once sync.Once
	env  *cel.Env
	err  error
}

// shape is the type of one value.
type shape struct {
	cel    *types.Type
	kind   string            // the schema's own word; empty is any
	fields map[string]*shape // of an object that has no others
	each   *shape            // of a list, or of a map
}

// maxShapes bounds how deep a schema is followed.
const maxShapes = 16

// ParamsOf reads a JSON Schema that was found well-formed.
func ParamsOf(schema []byte) *Params {
	var doc any
	if json.Unmarshal(schema, &doc) != nil {
		return nil
	}
	p := &Params{}
	p.root = shapeOf(doc, "params", 0)
	return p
}

func shapeOf(doc any, name string, depth int) *shape {
	open := &shape{cel: types.DynType}
	s, ok := doc.(map[string]any)
	if !ok || depth > maxShapes || s["$ref"] != nil || s["$dynamicRef"] != nil {
		return open
	}
	kind, _ := s["type"].(string)
	switch kind {
	case "string":
		return &shape{cel: types.StringType, kind: kind}
	case "boolean":
		return &shape{cel: types.BoolType, kind: kind}
	case "integer":
		return &shape{cel: types.IntType, kind: kind}
	case "number":
		return &shape{cel: types.DoubleType, kind: kind}
	case "array":
		each := open
		if s["prefixItems"] == nil && s["items"] != nil {
			each = shapeOf(s["items"], name+"[]", depth+1)
		}
		return &shape{cel: types.NewListType(each.cel), kind: kind, each: each}
	case "object":
		return objectShape(s, name, depth)
	}
	return open
}

// objectShape: an object that takes no names but those listed has fields, any
// other is a map.
func objectShape(s map[string]any, name string, depth int) *shape {
	open := &shape{cel: types.DynType}
	properties, _ := s["properties"].(map[string]any)
	if s["additionalProperties"] == false && s["patternProperties"] == nil {
		out := &shape{cel: objectType(name), kind: "object", fields: map[string]*shape{}}
		for key, sub := range properties {
			out.fields[key] = shapeOf(sub, name+"."+key, depth+1)
		}
		return out
	}
	each := open
	if len(properties) == 0 && s["patternProperties"] == nil && s["additionalProperties"] != nil && s["additionalProperties"] != true {
		each = shapeOf(s["additionalProperties"], name+".*", depth+1)
	}
	return &shape{cel: types.NewMapType(types.StringType, each.cel), kind: "object", each: each, fields: nil}
}

// Value is an argument, as params.Read gives it, with the types that conditions
// see: whole numbers where the schema says integer, or says nothing and the number
// is one.
func (p *Params) Value(v any) any {
	if p == nil {
		return value(v, nil)
	}
	return value(v, p.root)
}

func value(v any, s *shape) any {
	if s == nil {
		s = &shape{}
	}
	switch v := v.(type) {
	case json.Number:
		return number(v, s.kind)
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, sub := range v {
			if s.fields != nil {
				out[key] = value(sub, s.fields[key])
			} else {
				out[key] = value(sub, s.each)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, sub := range v {
			out[i] = value(sub, s.each)
		}
		return out
	}
	return v
}

func number(n json.Number, kind string) any {
	if kind != "number" {
		if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
			return i
		}
	}
	f, err := n.Float64()
	if err != nil {
		return n.String() // params.Read takes none of these
	}
	if kind == "integer" { // 2.0 is one
		return int64(f)
	}
	return f
}

// environment is what conditions on these arguments are compiled in.
func (p *Params) environment() (*cel.Env, error) {
	if p == nil {
		return openEnvironment()
	}
	p.once.Do(func() {
		base, err := baseEnvironment()
		if err != nil {
			p.err = err
			return
		}
		provider := &provider{Provider: base.CELTypeProvider(), objects: map[string]*shape{}}
		provider.add(p.root)
		p.env, p.err = base.Extend(cel.CustomTypeProvider(provider), cel.Variable("params", p.root.cel))
	})
	return p.env, p.err
}

// provider tells the checker the fields of objects. At run time they are maps.
type provider struct {
	types.Provider
	objects map[string]*shape
}

func (p *provider) add(s *shape) {
	if s == nil {
		return
	}
	if s.fields != nil {
		p.objects[s.cel.TypeName()] = s
	}
	for _, sub := range s.fields {
		p.add(sub)
	}
	p.add(s.each)
}

func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if s, ok := p.objects[name]; ok {
		return types.NewTypeTypeWithParam(s.cel), true
	}
	return p.Provider.FindStructType(name)
}

func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	s, ok := p.objects[name]
	if !ok {
		return p.Provider.FindStructFieldNames(name)
	}
	var names []string
	for n := range s.fields {
		names = append(names, n)
	}
	slices.Sort(names)
	return names, true
}

func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	s, ok := p.objects[name]
	if !ok {
		return p.Provider.FindStructFieldType(name, field)
	}
	f, ok := s.fields[field]
	if !ok {
		return nil, false
	}
	return &types.FieldType{Type: f.cel}, true
}

func (p *provider) NewValue(name string, fields map[string]ref.Val) ref.Val {
	if _, ok := p.objects[name]; ok {
		return types.NewErr("%s cannot be made in a condition", strings.ToLower(name))
	}
	return p.Provider.NewValue(name, fields)
}

// objectType has a name that no condition can write: else a field's path would be
// taken for the type.
func objectType(name string) *types.Type { return types.NewObjectType(name + "{}") }
