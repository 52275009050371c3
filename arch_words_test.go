// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// oldWords are the project's own words of earlier days. CONTRIBUTING.md has the standard term for each.
var oldWords = []string{
	"berth", "birth", "bury", "door", "estate", "halves", "most", "newborn", "patience", "seat", "shelf", "stock", "swift", "will", "world",
}

// checkWords returns the old words among the names that a file declares, and in the file's own name.
func checkWords(path string, f *ast.File) (broken []string) {
	check := func(what, name string) {
		words := camelWords(name)
		for i, word := range words {
			if word == "world" && i > 0 && words[i-1] == "open" {
				continue // MCP's openWorldHint
			}
			if slices.Contains(oldWords, word) || slices.Contains(oldWords, strings.TrimSuffix(word, "s")) {
				broken = append(broken, path+": the "+what+" "+name+" has the old word "+word)
			}
		}
	}
	check("file name", strings.TrimSuffix(filepath.Base(path), ".go"))
	check("package", f.Name.Name)
	declared := func(exprs ...ast.Expr) {
		for _, e := range exprs {
			if id, ok := e.(*ast.Ident); ok && id != nil {
				check("name", id.Name)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			declared(n.Name)
		case *ast.TypeSpec:
			declared(n.Name)
		case *ast.ImportSpec:
			declared(n.Name)
		case *ast.LabeledStmt:
			declared(n.Label)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				declared(id)
			}
		case *ast.Field:
			for _, id := range n.Names {
				declared(id)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				declared(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				declared(n.Key, n.Value)
			}
		}
		return true
	})
	return broken
}

// camelWords splits a name into lower-case words: "newHTTPDoor_linux" gives new, http, door, linux.
func camelWords(name string) []string {
	name = regexp.MustCompile(`([a-z0-9])([A-Z])`).ReplaceAllString(name, "${1}_$2")
	name = regexp.MustCompile(`([A-Z])([A-Z][a-z])`).ReplaceAllString(name, "${1}_$2")
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '_' || r == '.' || r == '-' })
}

func TestWords(t *testing.T) {
	sources(t, func(path string, _ []byte, f *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, b := range checkWords(path, f) {
			t.Error(b + "; see Words in CONTRIBUTING.md")
		}
	})
}

func TestWordsBite(t *testing.T) {
	parse := func(src string) *ast.File {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+src, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, src := range []string{
		"type world struct{}", "func newHTTPDoor() {}", "const askPatience = 1", "type T struct { Berth int }", "func f(stock int) {}",
		"func f() { will := 1; _ = will }", "func f() { for seat := range 3 { _ = seat } }", "func (halves T) f() {}", "var DOORS int",
	} {
		if len(checkWords("x.go", parse(src))) != 1 {
			t.Errorf("%s: nothing said so", src)
		}
	}
	if len(checkWords("a/door_linux.go", parse(""))) != 1 {
		t.Error("a file named for an old word: nothing said so")
	}
	for _, src := range []string{"var OpenWorld bool", "var willing, outdoors, worldly int", "func f() { x.World() }"} {
		if got := checkWords("x.go", parse(src)); len(got) != 0 {
			t.Errorf("%s: refused: %q", src, got)
		}
	}
}

// vagueWords stand where a noun belongs: comments and messages say which caller, user, process or program is meant, and
// that a sandbox is persistent.
var vagueWords = regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|whoever)\b|\blives? on\b`)

// checkVagueWords returns the vague words among the comments of a file and, in product code, among its messages: the
// literals of more than one word. The user of one of these names has its number behind it.
func checkVagueWords(path string, f *ast.File) (broken []string) {
	check := func(where, text string) {
		text = strings.ReplaceAll(text, "nobody (65534)", "")
		for _, word := range vagueWords.FindAllString(strings.Join(strings.Fields(text), " "), -1) {
			broken = append(broken, path+": a "+where+" says "+word+", which names no one")
		}
	}
	for _, group := range f.Comments {
		check("comment", group.Text())
	}
	dir := filepath.ToSlash(filepath.Dir(path))
	if strings.HasSuffix(path, "_test.go") || testOnly(dir) || under(dir, "internal/tools") {
		return broken
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, " ") {
			check("message", strings.ReplaceAll(lit.Value, `\n`, " "))
		}
		return true
	})
	return broken
}

// TestVagueWords holds that comments and messages say with a noun who is meant.
func TestVagueWords(t *testing.T) {
	sources(t, func(path string, _ []byte, f *ast.File) {
		for _, b := range checkVagueWords(path, f) {
			t.Error(b + "; see Words in CONTRIBUTING.md")
		}
	})
	for src, want := range map[string]int{
		"// nobody reads it": 1, "// It is for whoever\n// asks. Somebody does.": 2, "func f() { // it lives on\n}": 1,
		"// nobody (65534) runs it": 0, "var nobody int // the user": 0, "// TestConformanceAsNobody runs it": 0,
		`var e = errors.New("nobody reads it")`: 1, "type T struct { F int `doc:\"for whoever asks\"` }": 1, `var user = "nobody"`: 0,
		"var help = `It is shown to\nsomebody.`": 1,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+src+"\n", parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := checkVagueWords("x.go", file); len(got) != want {
			t.Errorf("%s: %d words found, want %d", src, len(got), want)
		}
	}
}
