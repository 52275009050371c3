// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bufio"
	"context"
	"encoding/json"

	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// clients is where make test-mcp keeps the clients and servers from npm; "" where
// it has not been run.
func clients(t *testing.T) string {
	t.Helper()
	if os.Getenv("CAISSON_TEST_BINARY") == "" {
		t.Skip("make test-mcp runs it")
	}
	dir, err := filepath.Abs("testdata/clients")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestConformance runs the official conformance suites, each as a whole, against the
// official fixture server behind a gateway, behind the HTTP endpoint of a daemon; and
// against the fixture alone. Every scenario has to have the same scores: 40 of 40 of
// the stable suite, 81 of 81 of what 2025-11-25 requires, and of 2026-07-28 all that
// count. One that no revision scores is left out, server-sse-polling: there a server
// closes its own HTTP stream, and behind a gateway it has none. TestConformanceOfServer
// has it, and so 82.
func TestConformance(t *testing.T) {
	dir := clients(t)
	fixture := filepath.Join(t.TempDir(), "everything")
	if out, err := exec.Command("go", "build", "-o", fixture, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		suite, revision string
		stateless       bool // how the fixture alone has its best score
		passed          int
	}{
		{"conformance", "", false, 40},
		{"conformance-next", "2025-11-25", false, 81},
		{"conformance-next", "2026-07-28", true, 165},
	} {
		t.Run(strings.TrimSpace(c.suite+" "+c.revision), func(t *testing.T) {
			alone := serveFixture(t, fixture, c.stateless)
			want := scores(t, dir, c.suite, c.revision, alone)
			var got map[string]string
			behindGateway(t, fixture, func(url string) { got = scores(t, dir, c.suite, c.revision, url) })
			delete(want, "server-sse-polling")
			delete(got, "server-sse-polling")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("alone (-), behind the gateway (+)\n%s", diff)
			}
			if n := passed(got); n != c.passed {
				t.Errorf("%d checks passed, want %d", n, c.passed)
			}
		})
	}
}

// TestConformanceOfServer runs the same suites against the server that agents get: a
// daemon's endpoint, in a build that has the fixture's tools besides its own.
func TestConformanceOfServer(t *testing.T) {
	dir := clients(t)
	url := serveOwn(t, buildFixture(t))
	for _, c := range []struct {
		suite, revision string
		passed          int
	}{{"conformance", "", 40}, {"conformance-next", "2025-11-25", 82}, {"conformance-next", "2026-07-28", 165}} {
		t.Run(strings.TrimSpace(c.suite+" "+c.revision), func(t *testing.T) {
			got := scores(t, dir, c.suite, c.revision, url)
			if n := passed(got); n != c.passed {
				t.Errorf("%d checks passed, want %d", n, c.passed)
			}
			for name, score := range got {
				// An extension that no server of the library has, and that does not count.
				if !strings.HasSuffix(score, " 0 failed") && !strings.HasPrefix(name, "tasks-") {
					t.Errorf("%s: %s", name, score)
				}
			}
		})
	}
}

// buildFixture builds this package's tests with the source of the official fixture
// in it, which is a program: Go cannot import one.
func buildFixture(t *testing.T) (program string) {
	t.Helper()
	source, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(source)), "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	ours := strings.NewReplacer("\npackage main\n", "\npackage mcp\n", "\nfunc main() {", "\nfunc fixtureMain() {").Replace(string(text))
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, "everything_test.go"): filepath.Join(tmp, "everything.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"everything.go": ours, "overlay.json": string(overlay)} {
		if err := writeFile(filepath.Join(tmp, name), text); err != nil {
			t.Fatal(err)
		}
	}
	program = filepath.Join(tmp, "fixture")
	if out, err := exec.Command("go", "test", "-c", "-tags", "conformance", "-overlay", filepath.Join(tmp, "overlay.json"), "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// serveOwn starts what buildFixture built, and returns the address that it serves at.
func serveOwn(t *testing.T, program string) (url string) {
	t.Helper()
	cmd := exec.Command(program, "-test.run", "^TestFixtureServer$")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for url == "" && lines.Scan() {
		_, url, _ = strings.Cut(lines.Text(), "serves at ")
	}
	t.Cleanup(func() {
		in.Close()
		rest, _ := io.ReadAll(out)
		if err := cmd.Wait(); err != nil || url == "" {
			t.Errorf("%v\n%s", err, rest)
		}
	})
	return url
}

// passed is how many checks passed.
func passed(scores map[string]string) (n int) {
	for _, score := range scores {
		one, _, _ := strings.Cut(score, " ")
		k, _ := strconv.Atoi(one)
		n += k
	}
	return n
}

// scores runs a suite and returns the score of each scenario.
func scores(t *testing.T, dir, suite, revision, url string) map[string]string {
	t.Helper()
	args := []string{"node_modules/" + suite + "/dist/index.js", "server", "--url", url}
	if revision != "" {
		args = append(args, "--requirements", revision)
	}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	found := regexp.MustCompile(`(?m)^[✓✗] (\S+): (\d+ passed, \d+ failed)$`).FindAllStringSubmatch(string(out), -1)
	if len(found) == 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	all := map[string]string{}
	for _, f := range found {
		all[f[1]] = f[2]
	}
	if err != nil || testing.Verbose() {
		t.Logf("%s: %v\n%s", url, err, out)
	}
	return all
}

// serveFixture serves the fixture by itself.
func serveFixture(t *testing.T, fixture string, stateless bool) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	ln.Close() // it takes an address, not a socket
	cmd := exec.Command(fixture, "-http", at, "-stateless="+strconv.FormatBool(stateless))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for c := net.Conn(nil); c == nil; {
		if t.Context().Err() != nil {
			t.Fatal("it never listens")
		}
		if c, err = net.Dial("tcp", at); err == nil {
			c.Close()
		}
	}
	return "http://" + at + "/mcp"
}

// behindGateway has do use the fixture behind a gateway, behind the endpoint of a
// daemon.
func behindGateway(t *testing.T, fixture string, do func(url string)) {
	t.Helper()
	b := newBench(t, func(ctx context.Context, in io.Reader, out, errs io.Writer) int {
		cmd := exec.CommandContext(ctx, fixture)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
		if cmd.Run() != nil {
			return 1
		}
		return 0
	})
	g := b.make(`{name: s, command: [server], tools: ["*"], resources: ["*"], prompts: ["*"], client: [sampling, elicitation, roots, logging]}`)
	h := NewHandler(HandlerOptions{Tools: func(*persistent.Key) Toolbox { return nil }, Authenticate: func(_ context.Context, token string) (*persistent.Key, error) {
		if token != "mine" {
			return nil, sandbox.ErrDenied
		}
		return &persistent.Key{ID: "k"}, nil
	}})
	h.servers["k"] = g.face
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer mine") // the suite has no keys
		h.ServeHTTP(w, r)
	}))
	defer s.Close()
	err := g.run(t.Context(), func(context.Context, func()) error {
		defer h.Close()
		do(s.URL + "/mcp")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if b.level.live != 0 || b.level.starts() != 1 {
		t.Errorf("%d servers are left, %d were started", b.level.live, b.level.starts())
	}
}
