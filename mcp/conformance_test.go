// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
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

// TestConformance runs the official conformance suite against the official
// fixture server behind a gateway, behind the HTTP endpoint of a daemon. What a
// gateway does not pass on (resources, prompts, logging, sampling, the user) is not
// asked for; every scenario about the rest has to pass. server-stateless is left
// out: one of its tools has to ask for sampling.
func TestConformance(t *testing.T) {
	dir := clients(t)
	fixture := filepath.Join(t.TempDir(), "everything")
	if out, err := exec.Command("go", "build", "-o", fixture, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := newBench(t, func(ctx context.Context, in io.Reader, out, errs io.Writer) int {
		cmd := exec.CommandContext(ctx, fixture)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
		if cmd.Run() != nil {
			return 1
		}
		return 0
	})
	g := b.make()
	h := NewHandler(HandlerOptions{Tools: func(*session.Key) Toolbox { return nil }, Authenticate: func(_ context.Context, token string) (*session.Key, error) {
		if token != "mine" {
			return nil, sandbox.ErrDenied
		}
		return &session.Key{ID: "k"}, nil
	}})
	h.servers["k"] = g.face
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer mine") // the suite has no keys
		h.ServeHTTP(w, r)
	}))
	defer s.Close()
	err := g.run(t.Context(), func(ctx context.Context, _ func()) error {
		defer h.Close()
		for suite, scenarios := range map[string][]string{"conformance": older, "conformance-next": newer} {
			if testing.Short() {
				scenarios = scenarios[3:4]
			}
			for _, scenario := range scenarios {
				t.Run(suite+"/"+scenario, func(t *testing.T) {
					name, revision, _ := strings.Cut(scenario, " ")
					args := []string{"node_modules/" + suite + "/dist/index.js", "server", "--url", s.URL + "/mcp", "--scenario", name}
					if revision != "" {
						args = append(args, "--spec-version", revision)
					}
					cmd := exec.CommandContext(ctx, "node", args...)
					cmd.Dir = dir
					out, err := cmd.CombinedOutput()
					found := regexp.MustCompile(`Passed: (\d+)/(\d+), (\d+) failed`).FindStringSubmatch(string(out))
					if err != nil || found == nil || found[1] == "0" || found[1] != found[2] {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if b.level.live != 0 {
		t.Errorf("%d servers are left", b.level.live)
	}
	if diff := cmp.Diff(1, b.level.starts()); diff != "" {
		t.Errorf("starts: %s", diff)
	}
}

// older are scenarios of the stable suite.
var older = []string{"server-initialize", "ping", "tools-list", "tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource",
	"tools-call-mixed-content", "tools-call-error", "tools-call-with-progress", "json-schema-2020-12", "server-sse-multiple-streams", "dns-rebinding-protection"}

// newer are scenarios of the suite to come, with the revision that they are run at.
var newer = []string{"server-session-lifecycle 2025-11-25", "tools-list 2025-11-25", "tools-list 2026-07-28",
	"tools-call-simple-text 2026-07-28", "tools-call-image 2026-07-28", "tools-call-audio 2026-07-28", "tools-call-embedded-resource 2026-07-28",
	"tools-call-mixed-content 2026-07-28", "tools-call-error 2026-07-28", "tools-call-with-progress 2026-07-28", "json-schema-2020-12 2026-07-28",
	"server-sse-multiple-streams 2026-07-28", "dns-rebinding-protection 2026-07-28", "http-header-validation 2026-07-28", "http-custom-header-server-validation 2026-07-28"}
