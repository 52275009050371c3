// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// Every kind that is written into a record somewhere can be asked for.
func TestAuditKinds(t *testing.T) {
	known, found := auditKinds(), 0
	for _, dir := range []string{"session", "session/*", "mcp", "policy", "audit"} {
		files, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				for _, kind := range kindsIn(n) {
					if found++; !slices.Contains(known, kind) {
						t.Errorf("%s: kind %q cannot be asked for", file, kind)
					}
				}
				return true
			})
		}
	}
	if found < len(known) {
		t.Errorf("%d were found, %d are known", found, len(known))
	}
}

// kindsIn are the kinds that n says: of an intent, of what becomes one, and constants.
func kindsIn(n ast.Node) (kinds []string) {
	say := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			s, _ := strconv.Unquote(lit.Value)
			kinds = append(kinds, s)
		}
	}
	switch n := n.(type) {
	case *ast.CompositeLit:
		switch typ := n.Type.(type) {
		case *ast.SelectorExpr: // audit.Intent{Kind: "x"}
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok && typ.Sel.Name == "Intent" && kv.Key.(*ast.Ident).Name == "Kind" {
					say(kv.Value)
				}
			}
		case *ast.Ident: // other{"x", …}, of mcp
			if typ.Name == "other" && len(n.Elts) > 0 {
				say(n.Elts[0])
			}
		}
	case *ast.AssignStmt: // r.intent.Kind, … = "x", …
		for i, l := range n.Lhs {
			if s, ok := l.(*ast.SelectorExpr); ok && s.Sel.Name == "Kind" && i < len(n.Rhs) && len(n.Lhs) == len(n.Rhs) {
				say(n.Rhs[i])
			}
		}
	case *ast.CallExpr: // l.copyDown(ctx, "x")
		if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "copyDown" {
			say(n.Args[1])
		}
	case *ast.ValueSpec:
		typ, _ := n.Type.(*ast.Ident)
		for i, name := range n.Names {
			if i < len(n.Values) && (typ != nil && typ.Name == "Kind" || typ == nil && strings.HasPrefix(name.Name, "Kind")) {
				say(n.Values[i])
			}
		}
	}
	return kinds
}

func TestOneOf(t *testing.T) {
	for word, want := range map[string]string{
		"": "", "run_code": "", "run_cod": "did you mean run_code?", "RUN_CODE": "did you mean run_code?", "conection": "did you mean connection?",
		"TYPO": "known are run_command, run_code", "x": "known are",
	} {
		err := oneOf("kind", word, auditKinds()...)
		if got := sandbox.Hint(err); (err == nil) != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %v, hint %q; want %q", word, err, got, want)
		}
	}
}
