// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// To count what a condition costs takes most of the time of a small one. Where its text
// says that it cannot come near the bounds, whatever the arguments are, nothing is
// counted. TestBrief holds that both ways come to the same.

// brief says that a condition is made of single values alone: arguments, numbers and
// texts that are written out, compared and reckoned with. Each of its parts is one step
// then, and one with a text that is written out as many as that has characters; there
// are at most maxText of both together. No value is made that is not one of the
// arguments or a number.
func brief(a *ast.AST) bool { return briefly(a, a.Expr()) }

func briefly(a *ast.AST, e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind, ast.IdentKind:
		return single(a, e)
	case ast.SelectKind:
		return single(a, e) && named(e.AsSelect().Operand()) // has(…) is one, too
	case ast.CallKind:
		return single(a, e) && brieflyCalled(a, e.AsCall())
	}
	return false
}

// brieflyCalled says so of an operator and what it is between. Two texts neither of which
// is written out could be long.
func brieflyCalled(a *ast.AST, c ast.CallExpr) bool {
	args, texts, written := c.Args(), 0, false
	if c.IsMemberFunction() {
		return false
	}
	for _, arg := range args {
		if !briefly(a, arg) {
			return false
		}
		if a.GetType(arg.ID()).IsExactType(types.StringType) {
			texts++
			written = written || arg.Kind() == ast.LiteralKind
		}
	}
	switch c.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional:
		return true
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return texts == 0 || written
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate:
		return texts == 0
	}
	return false
}

// named says that an object is a variable, or a field of one.
func named(e ast.Expr) bool {
	for e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() {
		e = e.AsSelect().Operand()
	}
	return e.Kind() == ast.IdentKind
}

// single says that what a part gives is a truth value, a number or a text.
func single(a *ast.AST, e ast.Expr) bool {
	t := a.GetType(e.ID())
	for _, one := range []*types.Type{types.BoolType, types.IntType, types.UintType, types.DoubleType, types.StringType} {
		if t.IsExactType(one) {
			return true
		}
	}
	return false
}
