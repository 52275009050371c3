// SPDX-License-Identifier: Apache-2.0

package postponed

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// program is what cmd/caisson links: what each package imports, and all that leads
// to; and where those that are neither Go's nor ours lie.
type program struct{ imports, files map[string][]string }

func linked(t *testing.T) program {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-tags", "embedguest,embedengine", "-f",
		`{{.ImportPath}};{{join .Deps " "}};{{if not .Standard}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}} {{end}}{{end}}`, "../../../cmd/caisson")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	p := program{map[string][]string{}, map[string][]string{}}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), ";")
		p.imports[f[0]] = append(strings.Fields(f[1]), f[0])
		if !strings.HasPrefix(f[0], "github.com/caisson-run/caisson") {
			p.files[f[0]] = strings.Fields(f[2])
		}
	}
	return p
}

// listed are the packages of packages.go, in order.
func listed(t *testing.T) (list []string) {
	t.Helper()
	src, err := os.ReadFile("packages.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\s*//go:linkname task\d+ (\S+)\.\.inittask$`).FindAllStringSubmatch(string(src), -1) {
		list = append(list, strings.ReplaceAll(m[1], "%2e", "."))
	}
	if n := len(conditions()) + len(registries()) + len(serving()) + len(schemas()) + len(policies()); n != len(list) || n < 10 {
		t.Fatalf("%d packages are listed, %d are postponed", len(list), n)
	}
	return list
}

// TestOrder: each package is one that the program links, and comes after all that
// it imports.
func TestOrder(t *testing.T) {
	list, p := listed(t), linked(t)
	for i, name := range list {
		if p.imports[name] == nil {
			t.Errorf("%s is not linked", name)
		}
		for _, after := range list[i+1:] {
			if slices.Contains(p.imports[name], after) {
				t.Errorf("%s comes before %s, which it imports", name, after)
			}
		}
	}
}

// TestClosed: what else imports a listed package is first-party, or has nothing to
// initialise.
func TestClosed(t *testing.T) {
	list, p := listed(t), linked(t)
	for name, files := range p.files {
		if slices.Contains(list, name) || !slices.ContainsFunc(list, func(l string) bool { return slices.Contains(p.imports[name], l) }) {
			continue
		}
		for _, file := range files {
			if what := initialises(t, file); what != "" {
				t.Errorf("%s is not listed, but something that it imports is: %s initialises %s", name, filepath.Base(file), what)
			}
		}
	}
}

// initialises is the first thing in a file that the compiler may leave to the
// start of the program; "" is nothing.
func initialises(t *testing.T, file string) (what string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				return "init"
			}
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			for _, s := range d.Specs {
				for _, v := range s.(*ast.ValueSpec).Values {
					ast.Inspect(v, func(n ast.Node) bool {
						switch n := n.(type) {
						case *ast.FuncLit:
							return false
						case *ast.CallExpr:
							if _, conversion := n.Fun.(*ast.ParenExpr); !conversion {
								what = s.(*ast.ValueSpec).Names[0].Name
							}
						case *ast.MapType:
							what = s.(*ast.ValueSpec).Names[0].Name
						}
						return true
					})
				}
			}
		}
	}
	return what
}
