// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCodemapIsWhole holds that each package is below a row of ARCHITECTURE.md's codemap, and that each row names a directory.
func TestCodemapIsWhole(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("\n## Codemap\n"))
	text, _, _ = bytes.Cut(text, []byte("\n## "))
	var rows []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllSubmatch(text, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllSubmatch(m[1], -1) {
			rows = append(rows, string(name[1]))
		}
	}
	for _, row := range rows {
		if info, err := os.Stat(row); err != nil || !info.IsDir() {
			t.Errorf("the codemap has a row for %s, which is no directory", row)
		}
	}
	for _, p := range list(t) {
		if name := strings.TrimPrefix(p.ImportPath, "./"); !under(name, rows...) {
			t.Errorf("the codemap has no row for %s", name)
		}
	}
}

// TestDocumentedFunctions holds that each `file.go:function` in docs/limits.md and docs/security is a function or method of that file.
func TestDocumentedFunctions(t *testing.T) {
	pages, err := filepath.Glob("docs/security/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, "docs/limits.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`([a-z0-9_/]+\\.go):([A-Za-z0-9_]+)`").FindAllSubmatch(text, -1) {
			found++
			if file, name := string(m[1]), string(m[2]); !declares(file, name) {
				t.Errorf("%s: %s has no function %s", page, file, name)
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d functions", found)
	}
}

// declares says whether a file has a function or method of that name.
func declares(file, name string) bool {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Name.Name == name
	})
}
