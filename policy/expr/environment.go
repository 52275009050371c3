// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"maps"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// baseEnvironment has all but params.
var baseEnvironment = sync.OnceValues(func() (*cel.Env, error) { return newEnvironment(nil) })

// effectEnvironment is for conditions about what a call would do: any call, with
// or without a tool.
var effectEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	base, err := newEnvironment(map[string]*shape{
		"kind": {cel: types.StringType}, "network": {cel: types.BoolType}, "root": {cel: types.BoolType}, "terminal": {cel: types.BoolType},
		"argv": {cel: types.NewListType(types.StringType)}, "language": {cel: types.StringType}, "isolation": {cel: types.StringType},
	})
	if err != nil {
		return nil, err
	}
	return base.Extend(cel.Variable("params", types.NewMapType(types.StringType, types.DynType)))
})

// newEnvironment makes one whose call has more to ask for.
func newEnvironment(more map[string]*shape) (*cel.Env, error) {
	toolType := &shape{cel: objectType("tool"), fields: map[string]*shape{"name": {cel: types.StringType}}}
	callType := &shape{cel: objectType("call"), fields: map[string]*shape{
		"actor": {cel: types.StringType}, "sandbox": {cel: types.StringType}, "operator": {cel: types.BoolType},
	}}
	maps.Copy(callType.fields, more)
	urlType := &shape{cel: objectType("url"), fields: map[string]*shape{
		"scheme": {cel: types.StringType}, "host": {cel: types.StringType}, "port": {cel: types.IntType},
		"path": {cel: types.StringType}, "query": {cel: types.StringType},
	}}
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	p := &provider{Provider: registry, objects: map[string]*shape{}}
	for _, s := range []*shape{toolType, callType, urlType} {
		p.add(s)
	}
	options := []cel.EnvOption{
		cel.CustomTypeAdapter(registry), cel.CustomTypeProvider(p),
		cel.Variable("tool", toolType.cel), cel.Variable("call", callType.cel),
		cel.CrossTypeNumericComparisons(true), cel.ParserExpressionSizeLimit(maxText), cel.ParserRecursionLimit(maxNested),
		one("email.domain", types.StringType, emailDomain), one("email.local", types.StringType, emailLocal),
		one("host", types.StringType, hostOf), two("host.under", hostUnder),
		one("path.clean", types.StringType, pathClean), one("path.base", types.StringType, pathBase), one("path.ext", types.StringType, pathExt),
		two("path.under", pathUnder), two("glob", globMatches),
		cel.Function("url", cel.Overload("url_string", []*cel.Type{types.StringType}, urlType.cel, cel.UnaryBinding(func(v ref.Val) ref.Val {
			fields, err := urlOf(string(v.(types.String)))
			if err != nil {
				return types.NewErr("%v", err)
			}
			return registry.NativeToValue(fields)
		}))),
	}
	return cel.NewEnv(options...)
}

var openEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	base, err := baseEnvironment()
	if err != nil {
		return nil, err
	}
	return base.Extend(cel.Variable("params", types.DynType))
})

// one declares a helper that makes a text of a text.
func one(name string, gives *types.Type, do func(string) (string, error)) cel.EnvOption {
	return cel.Function(name, cel.Overload(name+"_string", []*cel.Type{types.StringType}, gives, cel.UnaryBinding(func(v ref.Val) ref.Val {
		s, ok := v.(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(v)
		}
		out, err := do(string(s))
		if err != nil {
			return types.NewErr("%v", err)
		}
		return types.String(out)
	})))
}

// two declares a helper that compares two texts.
func two(name string, do func(a, b string) (bool, error)) cel.EnvOption {
	return cel.Function(name, cel.Overload(name+"_string_string", []*cel.Type{types.StringType, types.StringType}, types.BoolType, cel.BinaryBinding(func(x, y ref.Val) ref.Val {
		a, ok1 := x.(types.String)
		b, ok2 := y.(types.String)
		if !ok1 || !ok2 {
			return types.MaybeNoSuchOverloadErr(x)
		}
		out, err := do(string(a), string(b))
		if err != nil {
			return types.NewErr("%v", err)
		}
		return types.Bool(out)
	})))
}

// costs counts the helpers by what they read, and those of CEL's functions that it
// counts as one step where it does not know the types beforehand.
type costs struct{}

func (costs) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	n, product := uint64(1), uint64(1)
	for _, a := range args {
		n += length(a) / 10
		product *= length(a)
	}
	switch function {
	case "email.domain", "email.local", "host", "host.under", "path.clean", "path.base", "path.ext", "path.under", "url", operators.Add, "bytes", "string", "size":
	case "glob":
		n += product / 100
	case operators.In:
		if l, ok := args[1].(traits.Lister); ok {
			n += length(l)
		}
	default:
		return nil
	}
	return &n
}

// length is how long a text or a list is; 0 of anything else.
func length(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v)) // what Size counts are characters, one by one
	case types.Bytes:
		return uint64(len(v))
	case traits.Lister:
		if n, ok := v.Size().(types.Int); ok {
			return uint64(n)
		}
	}
	return 0
}
