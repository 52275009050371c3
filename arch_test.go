// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The rules of ARCHITECTURE.md that a machine can hold. Each is a function from
// the module's packages to sentences about what breaks it, so that the rule
// itself is tested with a module that does (TestRulesBite).

const module = "github.com/caisson-run/caisson"

// pkg is what go list tells of one package. First-party paths are relative to
// the module: "./sandbox/gvisor"; the root is ".".
type pkg struct {
	ImportPath string
	Imports    []string // without those of its tests
	Deps       []string // all that Imports lead to
}

// levels are the drivers: the folders of sandbox/ that carry a level out.
var levels = []string{
	"sandbox/process", "sandbox/gvisor", "sandbox/docker", "sandbox/microvm", "sandbox/kube", "sandbox/remote",
}

// frontends are the ways in; all of them go through session.
var frontends = []string{"internal/cli", "api", "mcp"}

func under(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == root || strings.HasPrefix(path, root+"/")
	})
}

// testOnly says that a package exists for tests: sandbox/faketest, sandbox/drivertest.
func testOnly(path string) bool { return strings.HasSuffix(path, "test") }

// firstParty is false for "os" and for "golang.org/x/sys/unix".
func firstParty(path string) bool {
	return strings.HasPrefix(path, "./") || path == "."
}

// rel shortens an import path: first-party ones start with "./" then.
func rel(path string) string {
	if path == module {
		return "."
	}
	if rest, ok := strings.CutPrefix(path, module+"/"); ok {
		return "./" + rest
	}
	return path
}

// level is the driver that a package below sandbox/ belongs to.
func level(path string) string {
	return levels[slices.IndexFunc(levels, func(l string) bool { return under(path, l) })]
}

func checkImports(pkgs []pkg) (broken []string) {
	breaks := func(p pkg, dep, why string) {
		broken = append(broken, p.ImportPath+" imports "+dep+": "+why)
	}
	for _, p := range pkgs {
		path := strings.TrimPrefix(p.ImportPath, "./")
		main := under(path, "cmd", "internal/tools") // tools measure and generate; no product code imports them
		for _, dep := range p.Imports {
			d := strings.TrimPrefix(dep, "./")
			switch {
			case path == "sandbox" && strings.Contains(strings.Split(dep, "/")[0], "."):
				breaks(p, dep, "sandbox imports only the standard library")
			case firstParty(dep) && under(d, levels...) && !under(path, levels...) && path != "." && !main && !testOnly(path):
				breaks(p, dep, "only cmd/caisson, caisson.go and tools name drivers")
			case firstParty(dep) && testOnly(d) && !testOnly(path) && !under(path, "internal/tools"):
				breaks(p, dep, "it exists for tests alone")
			case firstParty(dep) && under(d, "internal/tools") && !under(path, "internal/tools"):
				breaks(p, dep, "tools are for those who work on caisson")
			case under(path, frontends...) && !testOnly(path) && under(d, "guest"):
				breaks(p, dep, "session offers the processes and files of a sandbox; a frontend holds no client of its agent")
			case under(path, frontends...) && !testOnly(path) && under(d, "audit") && path != "internal/cli":
				// internal/cli opens the record for session, and shows, checks and exports it;
				// TestOneRecorder holds that it writes none.
				breaks(p, dep, "session writes the record, and internal/cli alone reads it")
			case firstParty(dep) && under(path, frontends...) && d == "session/environment" && !testOnly(path):
				breaks(p, dep, "session makes the environments of calls that it has decided")
			case firstParty(dep) && path == "session/environment" && (d == "session" || under(d, "audit", "session/persistent", "session/toolcall")):
				breaks(p, dep, "an environment decides nothing and records nothing")
			case under(dep, "github.com/santhosh-tekuri/jsonschema") && path != "tool/params":
				breaks(p, dep, "it takes no schema before tool/params/drafts is ready, which tool/params sees to")
			case under(path, "policy", "tool", "template") && doesIO(dep):
				breaks(p, dep, "policy, tool and template do no I/O of their own")
			case firstParty(dep) && under(path, levels...) && d != "sandbox" && !under(d, level(path), "guest", "image", "egress", "internal/linux"):
				breaks(p, dep, "a driver imports sandbox, guest, image, egress and internal/linux, nothing else of ours")
			}
		}
		for _, dep := range p.Deps {
			d := strings.TrimPrefix(dep, "./")
			switch {
			case !firstParty(dep):
			case under(path, frontends...) && under(d, levels...):
				breaks(p, dep, "a frontend never reaches a driver")
			case under(path, "client") && d != "client" && d != "sandbox":
				breaks(p, dep, "the client runs anywhere, and knows package sandbox alone")
			case under(path, levels...) && under(d, append(slices.Clone(frontends), "policy", "session", "audit", "approval")...):
				breaks(p, dep, "a driver carries out what others have decided")
			case under(path, "approval") && under(d, append(slices.Concat(frontends, levels), "session", "policy", "audit")...):
				breaks(p, dep, "what is approved is for the session to say, and who approves for a frontend")
			case under(path, "policy", "tool", "template") && under(d, "internal/files"):
				breaks(p, dep, "policy, tool and template do no I/O, by others neither")
			case under(path, "template") && under(d, append(slices.Concat(frontends, levels), "session", "audit", "image/fstree")...):
				breaks(p, dep, "a template's file is read here, and built by the session")
			case under(path, levels...) && under(d, levels...) && level(path) != level(d):
				breaks(p, dep, "a driver never reaches another")
			}
		}
	}
	return broken
}

// doesIO names the ways out of a process. What a third party does is its own
// affair; these are the ones that policy's code could be tempted by.
func doesIO(dep string) bool {
	switch dep {
	case "net/url", "net/netip", "net/mail": // they parse
		return false
	}
	return under(dep, "os", "net", "syscall", "io/ioutil", "golang.org/x/sys", "database", "./internal/linux", "./internal/store")
}

func TestImportRules(t *testing.T) {
	pkgs := list(t)
	for _, b := range checkImports(pkgs) {
		t.Error(b)
	}
	if len(pkgs) == 0 {
		t.Error("go list gave no package")
	}
}

// A rule that cannot fail holds nothing.
func TestRulesBite(t *testing.T) {
	for name, p := range map[string]pkg{
		"frontend makes environments":   {ImportPath: "./api/v1", Imports: []string{"./session/environment"}},
		"environment records":           {ImportPath: "./session/environment", Imports: []string{"./audit"}},
		"frontend imports driver":       {ImportPath: "./mcp", Imports: []string{"./sandbox/gvisor"}, Deps: []string{"./sandbox/gvisor"}},
		"frontend reaches driver":       {ImportPath: "./api/e2b", Imports: []string{"./x"}, Deps: []string{"./x", "./sandbox/kube"}},
		"driver imports policy":         {ImportPath: "./sandbox/gvisor", Deps: []string{"./policy"}},
		"driver reaches policy":         {ImportPath: "./sandbox/gvisor", Imports: []string{"./image"}, Deps: []string{"./image", "./policy"}},
		"driver imports the store":      {ImportPath: "./sandbox/gvisor", Imports: []string{"./internal/store"}},
		"driver imports another":        {ImportPath: "./sandbox/gvisor/boot", Deps: []string{"./sandbox/process"}},
		"policy reads files":            {ImportPath: "./policy/shell", Imports: []string{"os"}},
		"policy reaches files":          {ImportPath: "./policy", Deps: []string{"./internal/files"}},
		"template reads files":          {ImportPath: "./template", Imports: []string{"os"}},
		"template reaches the session":  {ImportPath: "./template", Imports: []string{"./x"}, Deps: []string{"./x", "./session"}},
		"policy dials":                  {ImportPath: "./policy", Imports: []string{"net/http"}},
		"a second one compiles schemas": {ImportPath: "./mcp", Imports: []string{"github.com/santhosh-tekuri/jsonschema/v6"}},
		"tool reads files":              {ImportPath: "./tool/params", Imports: []string{"os"}},
		"policy starts programs":        {ImportPath: "./policy", Imports: []string{"os/exec"}},
		"sandbox takes a third party":   {ImportPath: "./sandbox", Imports: []string{"golang.org/x/sys/unix"}},
		"client reaches the road":       {ImportPath: "./client", Imports: []string{"./x"}, Deps: []string{"./x", "./session"}},
		"session names a driver":        {ImportPath: "./session", Imports: []string{"./sandbox/docker"}},
		"session imports a tool":        {ImportPath: "./session", Imports: []string{"./internal/tools/bench"}},
		"approval reaches a frontend":   {ImportPath: "./approval", Deps: []string{"./internal/cli"}},
		"approval reaches the road":     {ImportPath: "./approval/x", Deps: []string{"./session"}},
		"driver reaches approval":       {ImportPath: "./sandbox/gvisor", Deps: []string{"./approval"}},
		"frontend imports guest":        {ImportPath: "./api/e2b", Imports: []string{"./guest"}},
		"frontend imports guest/wire":   {ImportPath: "./api/openai", Imports: []string{"./guest/wire"}},
		"cli imports guest":             {ImportPath: "./internal/cli", Imports: []string{"./guest"}},
		"api imports audit":             {ImportPath: "./api/v1", Imports: []string{"./audit"}},
		"mcp imports audit":             {ImportPath: "./mcp", Imports: []string{"./audit"}},
		"product imports a fake driver": {ImportPath: "./session", Imports: []string{"./sandbox/faketest"}},
	} {
		if len(checkImports([]pkg{p})) == 0 {
			t.Errorf("%s: nothing said so", name)
		}
	}
	for name, p := range map[string]pkg{
		"policy parses addresses": {ImportPath: "./policy", Imports: []string{"net/netip", "./sandbox"}},
		"driver":                  {ImportPath: "./sandbox/gvisor", Imports: []string{"./sandbox", "gvisor.dev/gvisor/x"}, Deps: []string{"./sandbox", "./internal/linux/cgroup", "os"}},
		"main":                    {ImportPath: "./cmd/caisson", Imports: []string{"./sandbox/gvisor"}},
		"tool measures a driver":  {ImportPath: "./internal/tools/bench", Imports: []string{"./sandbox/gvisor"}},
		"cli reads the record":    {ImportPath: "./internal/cli", Imports: []string{"./audit"}},
		"frontends' test server":  {ImportPath: "./api/apitest", Imports: []string{"./audit", "./guest/agent"}},
		"library face":            {ImportPath: ".", Imports: []string{"./sandbox/gvisor"}},
	} {
		if got := checkImports([]pkg{p}); len(got) != 0 {
			t.Errorf("%s: refused: %q", name, got)
		}
	}
}

// list asks go list for the module's packages as they are built for Linux.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Env = append(cmd.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = rel(p.ImportPath)
		for _, deps := range [][]string{p.Imports, p.Deps} {
			for i := range deps {
				deps[i] = rel(deps[i])
			}
		}
		pkgs = append(pkgs, p)
	}
}

// The binary that make builds carries the engine as a file: what one of the two
// needs must not come to lie in the other by a stray import.
func TestEngineIsApart(t *testing.T) {
	deps := func(program, tags string) []string {
		t.Helper()
		cmd := exec.Command("go", "list", "-e", "-deps", "-tags", tags, program)
		cmd.Env = append(cmd.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		return strings.Fields(string(out))
	}
	const all = "embedguest,embedengine"
	binary, engine, router := deps("./cmd/caisson", all), deps("./cmd/caisson-engine", all), deps("./cmd/caisson-router", all)
	for _, dep := range binary {
		if under(dep, "gvisor.dev/gvisor") {
			t.Errorf("cmd/caisson links %s", dep)
		}
	}
	for _, dep := range engine {
		if d := rel(dep); under(d, "./session", "./policy", "./audit", "./internal/cli", "./image", "database/sql", "github.com/spf13") {
			t.Errorf("cmd/caisson-engine links %s", dep)
		}
	}
	for _, dep := range router {
		if d := rel(dep); under(d, "./session", "./policy", "./audit", "./internal/cli", "./image", "./sandbox/gvisor", "gvisor.dev/gvisor/pkg/sentry", "gvisor.dev/gvisor/runsc", "google.golang.org/protobuf") {
			t.Errorf("cmd/caisson-router links %s", dep)
		}
	}
	if slices.Contains(engine, module+"/egress/router") || slices.Contains(binary, module+"/egress/router") || !slices.Contains(router, module+"/egress/router") {
		t.Error("the router is not a program of its own, or not only that")
	}
	if !slices.Contains(engine, "gvisor.dev/gvisor/runsc/boot") || !slices.Contains(binary, module+"/session") {
		t.Error("the lists are not those of the two programs")
	}
}

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

// oldWords are the project's own words of earlier days. CONTRIBUTING.md has the standard term for each.
var oldWords = []string{
	"berth", "birth", "bury", "door", "estate", "halves", "most", "newborn", "patience", "seat", "shelf", "stock", "swift", "will", "world",
}

// oldWordsStay says where an old word may still be declared, and why; without a word, every one of the list. A row that
// names no standard is work that is left: it goes when its words do.
var oldWordsStay = []struct{ path, word string }{}

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
			stays := false
			for _, s := range oldWordsStay {
				stays = stays || under(path, s.path) && (s.word == "" || strings.HasSuffix(b, " "+s.word))
			}
			if !stays {
				t.Error(b + "; see Words in CONTRIBUTING.md")
			}
		}
	})
}

// vagueWords stand where a noun belongs: comments say which caller, user, process or program is meant, and that a
// sandbox is persistent.
var vagueWords = regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|whoever)\b|\blives? on\b`)

// checkComments returns the vague words among the comments of a file. The user of one of these names has its number
// behind it.
func checkComments(path string, f *ast.File) (broken []string) {
	for _, group := range f.Comments {
		text := strings.ReplaceAll(group.Text(), "nobody (65534)", "")
		for _, word := range vagueWords.FindAllString(strings.Join(strings.Fields(text), " "), -1) {
			broken = append(broken, path+": a comment says "+word+", which names no one")
		}
	}
	return broken
}

// TestWordsOfComments holds that comments say with a noun who is meant.
func TestWordsOfComments(t *testing.T) {
	sources(t, func(path string, _ []byte, f *ast.File) {
		for _, b := range checkComments(path, f) {
			t.Error(b + "; see Words in CONTRIBUTING.md")
		}
	})
	for src, want := range map[string]int{
		"// nobody reads it": 1, "// It is for whoever\n// asks. Somebody does.": 2, "func f() { // it lives on\n}": 1,
		"// nobody (65534) runs it": 0, "var nobody int // the user": 0, "// TestConformanceAsNobody runs it": 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+src+"\n", parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := checkComments("x.go", file); len(got) != want {
			t.Errorf("%s: %d words found, want %d", src, len(got), want)
		}
	}
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
