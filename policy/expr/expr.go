// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// Bounds of a condition and of one evaluation.
const (
	maxText   = 4096      // characters of a condition
	maxNested = 40        // parentheses and their like
	maxCost   = 300_000   // steps, as CEL counts them; some ten milliseconds
	maxMemory = 128 << 20 // bytes, as CEL estimates them
	// CEL walks up to 10 000 elements to estimate a value, which is no step: in a loop
	// it does so for one value of so many.
	measured = 100
)

// Expr is a condition. It does not change and may be used from many goroutines.
type Expr struct {
	text    string
	program cel.Program
}

// String is the condition as it was written.
func (e *Expr) String() string { return e.text }

// Compile reads a condition about calls whose arguments are of params; nil is any
// arguments. Errors are Faults.
func Compile(text string, params *Params) (*Expr, error) {
	if strings.TrimSpace(text) == "" {
		return nil, Faults{{1, 1, "it is empty"}}
	}
	return compile(text, params.environment)
}

// CompileEffect reads a condition about what a call would do; see [PrepareEffect].
// Its params are of any tool, and none where there is no tool.
func CompileEffect(text string) (*Expr, error) {
	if strings.TrimSpace(text) == "" {
		return nil, Faults{{1, 1, "it is empty"}}
	}
	return compile(text, effectEnvironment)
}

func compile(text string, environment func() (*cel.Env, error)) (*Expr, error) {
	env, err := environment()
	if err != nil {
		return nil, Faults{{1, 1, err.Error()}}
	}
	ast, issues := env.Compile(text)
	if issues != nil && issues.Err() != nil {
		var all Faults
		for _, i := range issues.Errors() {
			all = append(all, Fault{max(i.Location.Line(), 1), max(i.Location.Column(), 0) + 1, problem(i.Message)})
		}
		return nil, all
	}
	if t := ast.OutputType(); !t.IsExactType(types.BoolType) {
		return nil, Faults{{1, 1, "it is " + t.String() + ", and must be true or false"}}
	}
	program, err := programOf(env, ast)
	if err != nil {
		return nil, Faults{{1, 1, problem(err.Error())}}
	}
	return &Expr{text, program}, nil
}

// programOf makes what is evaluated. What it costs is counted.
func programOf(env *cel.Env, ast *cel.Ast) (cel.Program, error) {
	return env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost), cel.MemoryLimit(maxMemory),
		cel.MemoryTracking(types.MemoryTrackerSampleInterval(measured)), cel.CostTracking(costs{}))
}

// problem is CEL's message without what is of no use to a reader.
func problem(s string) string {
	s = strings.TrimPrefix(s, "Syntax error: ")
	s, _, _ = strings.Cut(s, " (in container '')")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}

// Holds says whether the condition holds. An error is why that cannot be said.
func (e *Expr) Holds(p *Prepared) (holds bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			holds, err = false, fmt.Errorf("it failed: %v", r)
		}
	}()
	out, _, err := e.program.Eval(p.vars)
	if err != nil {
		if s := err.Error(); strings.Contains(s, "cost limit") || strings.Contains(s, "memory limit") {
			return false, errors.New("it takes too long with these arguments")
		}
		if name, ok := strings.CutPrefix(err.Error(), "no such key: "); ok {
			return false, fmt.Errorf("%s %w", name, ErrMissing)
		}
		return false, errors.New(problem(err.Error()))
	}
	return out == types.True, nil
}
