// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	spdx      = "// SPDX-License-Identifier: Apache-2.0\n"
)

// sources parses every Go file of the module, whatever it is built for.
func sources(t *testing.T, visit func(path string, src []byte, f *ast.File)) {
	t.Helper()
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != "." && (name[0] == '.' || name[0] == '_' || name == "testdata" || name == "dist" || name == "bin") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, path, src, parser.ParseComments)
		if err != nil {
			return err
		}
		visit(path, src, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryFileNamesItsLicence(t *testing.T) {
	sources(t, func(path string, src []byte, f *ast.File) {
		head := src[:min(len(src), int(f.Package))]
		if !bytes.HasPrefix(src, []byte(spdx)) && !(generated.Match(head) && bytes.Contains(head, []byte(spdx))) {
			t.Errorf("%s: the first line is not %q", path, strings.TrimSpace(spdx))
		}
	})
}

func TestEveryPackageHasOneComment(t *testing.T) {
	comments := map[string][]string{} // directory and package → files that have one
	sources(t, func(path string, _ []byte, f *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		key := filepath.Dir(path) + " (package " + f.Name.Name + ")"
		files := comments[key]
		if f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" {
			files = append(files, path)
		}
		comments[key] = files
	})
	for key, files := range comments {
		if len(files) != 1 {
			t.Errorf("%s: %d package comments, want one: %q", key, len(files), files)
		}
	}
}
