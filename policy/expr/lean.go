// SPDX-License-Identifier: Apache-2.0

//go:build lean

package expr

// Expr is a condition. A program without CEL has none: it compiles nothing, so that
// whoever reads a policy with a condition in it ends there.
type Expr struct{}

// String is the condition as it was written.
func (*Expr) String() string { return "" }

// Holds is never true.
func (*Expr) Holds(*Prepared) (bool, error) { return false, errLean }

// Params is what a JSON Schema says of the types of arguments.
type Params struct{}

// ParamsOf reads nothing.
func ParamsOf([]byte) *Params { return nil }

// Value is v.
func (*Params) Value(v any) any { return v }

var errLean = Faults{{1, 1, "conditions are not in this program"}}

// Compile refuses.
func Compile(string, *Params) (*Expr, error) { return nil, errLean }

// CompileEffect refuses.
func CompileEffect(string) (*Expr, error) { return nil, errLean }
