// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// The login of a made-up account: what its file has first, and what its provider gives for
// that, once.
const (
	accessBefore, accessAfter   = "sk-ant-oat01-before", "sk-ant-oat01-after"
	refreshBefore, refreshAfter = "sk-ant-ort01-before", "sk-ant-ort01-after"
)

// serveLogin is the provider of the login, and the host that it is for, which repeats what
// it gets.
func serveLogin(w http.ResponseWriter, r *http.Request) bool {
	switch r.Host + r.URL.Path {
	case "platform.claude.com/v1/oauth/token":
		if b, _ := io.ReadAll(r.Body); !strings.Contains(string(b), refreshBefore) {
			http.Error(w, "invalid_grant", http.StatusBadRequest)
			return true
		}
		fmt.Fprintf(w, `{"access_token":%q,"refresh_token":%q,"expires_in":3600}`, accessAfter, refreshAfter)
	case "api.anthropic.com/v1/messages", "api.anthropic.com/api/oauth/claude_cli/create_api_key", "api.anthropic.com/v1/files":
		if r.Header.Get("Authorization") != "Bearer "+accessAfter {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprintf(w, "%s for %s", r.URL.Path, r.Header.Get("Authorization"))
	default:
		return false
	}
	return true
}

// A login is renewed on the host, and used inside, where its tokens are never: not in its
// file, not in answers of a host that repeats them, not in any record. What else the token
// is good for is refused, and so is the host that gives out tokens.
func TestLogin(t *testing.T) {
	for _, level := range []string{"gvisor", "process"} {
		t.Run(level, func(t *testing.T) { onInternet(t, func(t *testing.T) { loginRoad(t, level, plugIn(t)) }) })
	}
}

func loginRoad(t *testing.T, level, ca string) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("CLAUDE_CONFIG_DIR", "")
	file := filepath.Join(home, ".claude/.credentials.json")
	for what, expires := range map[string]time.Time{"expired": time.Now().Add(-time.Hour), "refused": time.Now().Add(time.Hour)} {
		text := fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"refreshToken":%q,"expiresAt":%d,"scopes":["user:inference"],"subscriptionType":"max"},"kept":true}`, accessBefore, refreshBefore, expires.UnixMilli())
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		written := time.Now().Add(-time.Hour) // of what was written just now no refusal is believed
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chtimes(file, written, written)); err != nil {
			t.Fatal(err)
		}
		const ask = `curl -sS -m 20 -w ' %{http_code}' -X POST -H "Authorization: Bearer $CLAUDE" https://`
		res, err := caisson.Run(t.Context(), caisson.Request{
			Isolation: level, UpstreamCA: ca, Allow: []string{"api.anthropic.com", "platform.claude.com", "chatgpt.com", "good.example.com"},
			Secrets: []caisson.Secret{{Name: "CLAUDE", From: "login:claude"}, {Name: "CHATGPT", From: "login:chatgpt", Optional: true}},
			Command: []string{"sh", "-c", ask + "api.anthropic.com/v1/messages; echo; " + ask + "api.anthropic.com/v1/messages; echo; " +
				ask + "api.anthropic.com/api/oauth/claude_cli/create_api_key; echo; " + ask + "api.anthropic.com/v1/files; echo; " +
				ask + "platform.claude.com/v1/oauth/token; echo; curl -sSk -m 20 -H \"Authorization: Bearer $CLAUDE\" https://good.example.com/key; echo; " +
				"cat ~/.claude/.credentials.json; touch ~/.claude/settings.json && echo writable; echo x > ~/.claude/.credentials.json; ls ~/.codex; echo \"[$CHATGPT]\"; env"},
			Limits: caisson.Limits{Wall: time.Minute},
		})
		if err != nil {
			t.Fatal(err)
		}
		out := string(res.Stdout) + string(res.Stderr)
		for _, secret := range []string{accessBefore, accessAfter, refreshBefore, refreshAfter} {
			if strings.Contains(out, secret) {
				t.Errorf("%s: %s is inside", what, secret)
			}
		}
		lines := strings.Split(string(res.Stdout), "\n")
		first := map[string]string{"expired": "/v1/messages for Bearer " + strings.Repeat("*", len(accessAfter)) + " 200", "refused": "ask again"}[what]
		for i, want := range []string{first, "/v1/messages for Bearer " + strings.Repeat("*", len(accessAfter)) + " 200", "the path is not among", "the path is not among"} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s: %d: %s; want %s", what, i, lines[i], want)
			}
		}
		for _, want := range []string{"Could not resolve host: platform.claude.com", "Bearer caisson-secret-", `"accessToken": "caisson-secret-`, "writable", "[]", "CLAUDE=caisson-secret-"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: there is no %s in\n%s", what, want, out)
			}
		}
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), accessAfter) || !strings.Contains(string(b), refreshAfter) || !strings.Contains(string(b), `"kept": true`) {
			t.Errorf("%s: %v\n%s", what, err, b)
		}
		for _, secret := range []string{accessBefore, accessAfter, refreshBefore, refreshAfter} {
			nowhere(t, secret)
		}
	}
}
