// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestOneRecorder holds that operations alone write calls into the record: audit/operation.go does, and
// session/persistent/records.go passes on what it has metered.
func TestOneRecorder(t *testing.T) {
	writes, found := regexp.MustCompile(`(?i)(journal|log|record)\.(Begin|Refuse)\(`), 0
	sources(t, func(path string, text []byte, _ *ast.File) {
		if strings.HasSuffix(path, "_test.go") || under(path, "audit", "internal/tools") || !bytes.Contains(text, []byte(module+`/audit"`)) || !writes.Match(text) {
			return
		}
		if found++; path != "session/persistent/records.go" {
			t.Errorf("%s writes records by itself; it should be an operation", path)
		}
	})
	if found == 0 {
		t.Error("not even session/persistent/records.go was found")
	}
}

// pipelineOnly are names that only session's own packages may say: who says one goes round the
// decision, the record, or what a call is counted for.
var pipelineOnly = []string{
	"session.Invocation", "session.Decision", "session.Origin", "session.Resources",
	"audit.Begin", "audit.Refuse", "audit.Perform", "*.Journal()", "*.CallToolIn", "*.RefuseToolFor", "*.RecordArgv", "*.Fetches", "*.Swept",
}

// checkPipeline returns what of pipelineOnly a file says.
func checkPipeline(path string, f *ast.File) (broken []string) {
	says := func(name string) {
		if slices.Contains(pipelineOnly, name) {
			broken = append(broken, path+" says "+name+": calls go through Session.Do, persistent.Sandboxes and toolcall.Tools")
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) == 0 {
				says("*." + sel.Sel.Name + "()")
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok {
				says("*." + key.Name)
			}
		case *ast.SelectorExpr:
			says("*." + n.Sel.Name)
			if x, ok := n.X.(*ast.Ident); ok {
				says(x.Name + "." + n.Sel.Name)
			}
		}
		return true
	})
	return broken
}

// TestFrontendsGoThroughThePipeline holds what exported names of session's packages would let a
// frontend pass over.
func TestFrontendsGoThroughThePipeline(t *testing.T) {
	looked := 0
	sources(t, func(path string, _ []byte, f *ast.File) {
		dir := filepath.ToSlash(filepath.Dir(path))
		if strings.HasSuffix(path, "_test.go") || testOnly(dir) || dir != "." && !under(dir, frontends...) {
			return
		}
		looked++
		for _, b := range checkPipeline(path, f) {
			t.Error(b)
		}
	})
	if looked == 0 {
		t.Error("no frontend was found")
	}
	for _, src := range []string{
		"var r session.Invocation", "var _ = audit.Begin", "func f(s T) { s.Journal() }", "func f(t T) { t.CallToolIn() }",
		"func f(c *T) { c.RecordArgv = nil }", "var o = session.Options{Swept: true}",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(checkPipeline("x.go", file)) == 0 {
			t.Errorf("%s: nothing said so", src)
		}
	}
}

// filepath both cuts names, which is calculation, and looks at the disk.
func TestPolicyLooksAtNoDisk(t *testing.T) {
	looks := []string{"Abs", "EvalSymlinks", "Glob", "Walk", "WalkDir"}
	sources(t, func(path string, _ []byte, f *ast.File) {
		if !under(path, "policy") || strings.HasSuffix(path, "_test.go") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains(looks, sel.Sel.Name) {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "filepath" {
					t.Errorf("%s: filepath.%s does I/O; policy is given a PathResolver", path, sel.Sel.Name)
				}
			}
			return true
		})
	})
}
