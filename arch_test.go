// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
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
			case (path == "sandbox" || path == "interpreter") && strings.Contains(strings.Split(dep, "/")[0], "."):
				breaks(p, dep, "it imports only the standard library")
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
			case under(path, "client") && d != "client" && d != "sandbox" && d != "interpreter":
				breaks(p, dep, "the client runs anywhere, and knows the words of packages sandbox and interpreter alone")
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
