// SPDX-License-Identifier: Apache-2.0

package login

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	oldAccess, oldRefresh = "old-access-token", "old-refresh-token"
	newAccess, newRefresh = "new-access-token", "new-refresh-token"
)

// jwt is an access token of OpenAI's, with an end.
func jwt(t testing.TB, text string, end time.Time) string {
	t.Helper()
	token, err := unsigned(map[string]any{"exp": end.Unix(), "jti": text})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// files are logins as agents write them, whose access tokens end at a time.
func file(t testing.TB, name string, end time.Time) string {
	t.Helper()
	switch name {
	case "claude":
		return fmt.Sprintf(`{"claudeAiOauth":{"accessToken":%q,"refreshToken":%q,"expiresAt":%d,"scopes":["user:inference","user:profile"],"subscriptionType":"max","later":[1]},"mcpOAuth":{"s":{"accessToken":"another-secret"}}}`,
			oldAccess, oldRefresh, end.UnixMilli())
	case "chatgpt":
		id, err := unsigned(map[string]any{"email": "somebody@example.com", authClaim: map[string]string{"chatgpt_plan_type": "plus", "chatgpt_account_id": "acct-1", "user_id": "u"}})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"OPENAI_API_KEY":null,"tokens":{"id_token":%q,"access_token":%q,"refresh_token":%q,"account_id":"acct-1","later":1},"last_refresh":"2026-01-01T00:00:00Z","other":{"a":1}}`,
			id, jwt(t, oldAccess, end), oldRefresh)
	}
	return fmt.Sprintf(`{"access_token":%q,"refresh_token":%q,"expiry_date":%d,"scope":"x"}`, oldAccess, oldRefresh, end.UnixMilli())
}

// home has a login's file; the answer is what its provider says of each request.
func home(t testing.TB, name, content string) func(string) (string, bool) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, providers()[name].file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(key string) (string, bool) { return map[string]string{"HOME": dir}[key], key == "HOME" }
}

func open(t testing.TB, name string, lookup func(string) (string, bool), endpoint string) *Login {
	t.Helper()
	l, err := Open(name, lookup)
	if err != nil {
		t.Fatal(err)
	}
	if endpoint != "" {
		l.Endpoint = endpoint
	}
	return l
}

// A login that has expired is renewed once for all who ask at once: other Logins are other
// processes. The file keeps what is not known here, and its mode.
func TestRenew(t *testing.T) {
	for _, name := range []string{"claude", "chatgpt"} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var asked []string
			access := newAccess
			if name == "chatgpt" {
				access = jwt(t, newAccess, time.Now().Add(time.Hour))
			}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, string(b))
				fmt.Fprintf(w, `{"access_token":%q,"refresh_token":%q,"expires_in":3600,"id_token":"new.id.token"}`, access, newRefresh)
			}))
			defer s.Close()
			lookup := home(t, name, file(t, name, time.Now().Add(-time.Hour)))
			var all sync.WaitGroup
			asking := make(chan struct{}) // closed when all have seen the old token
			for range 8 {
				l := open(t, name, lookup, s.URL)
				before, err := l.Token()
				if err != nil || !before.Expires.Before(time.Now()) {
					t.Fatalf("%v, %v", before.Expires, err)
				}
				all.Go(func() {
					<-asking
					after, err := l.Renew(t.Context(), before.Serial)
					if err != nil || after.Value != access || after.Serial == before.Serial || !after.Expires.After(time.Now().Add(50*time.Minute)) {
						t.Errorf("%v until %v, %v", after.Serial, after.Expires, err)
					}
				})
			}
			close(asking)
			all.Wait()
			if len(asked) != 1 || !strings.Contains(asked[0], oldRefresh) || !strings.Contains(asked[0], providers()[name].clientID) {
				t.Errorf("the provider was asked %d times: %q", len(asked), asked)
			}
			l := open(t, name, lookup, s.URL)
			info, err := os.Stat(l.Path)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			b, _ := os.ReadFile(l.Path)
			for _, want := range []string{newRefresh, access, `"later"`} {
				if !strings.Contains(string(b), want) {
					t.Errorf("the file has no %s", want)
				}
			}
			if strings.Contains(string(b), oldRefresh) || !strings.Contains(string(b), "mcpOAuth") && !strings.Contains(string(b), `"other"`) {
				t.Errorf("%s", b)
			}
			if left, _ := os.ReadDir(filepath.Dir(l.Path)); len(left) != 1 {
				t.Errorf("left are %v", left)
			}
		})
	}
}

// A host that refuses a token that has not expired is believed once in a while, for all
// sandboxes together: code can have it refuse.
func TestRenewRefused(t *testing.T) {
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		fmt.Fprintf(w, `{"access_token":"access-%d","refresh_token":"refresh-%d","expires_in":3600}`, n, n)
	}))
	defer s.Close()
	lookup := home(t, "claude", file(t, "claude", time.Now().Add(time.Hour)))
	l := open(t, "claude", lookup, s.URL)
	before, err := l.Token()
	if err != nil {
		t.Fatal(err)
	}
	if same, err := l.Renew(t.Context(), before.Serial); err != nil || same != before || n != 0 {
		t.Errorf("just after it was written there is %+v, %v; asked %d times", same, err, n)
	}
	old := time.Now().Add(-renewEvery)
	if err := os.Chtimes(l.Path, old, old); err != nil {
		t.Fatal(err)
	}
	after, err := l.Renew(t.Context(), before.Serial)
	if err != nil || after.Value != "access-1" {
		t.Errorf("%+v, %v", after, err)
	}
	if same, err := l.Renew(t.Context(), before.Serial); err != nil || same != after {
		t.Errorf("who asks late gets %+v, %v", same, err)
	}
	if same, err := l.Renew(t.Context(), after.Serial); err != nil || same != after || n != 1 {
		t.Errorf("%+v, %v; asked %d times", same, err, n)
	}
	other := open(t, "claude", lookup, s.URL) // that of another sandbox
	token, err := other.Token()
	if err != nil {
		t.Fatal(err)
	}
	if same, err := other.Renew(t.Context(), token.Serial); err != nil || same.Value != after.Value || n != 1 {
		t.Errorf("%+v, %v; asked %d times", same, err, n)
	}
}

// What the login's agent writes meanwhile stays, and is what is used.
func TestRenewBesideItsAgent(t *testing.T) {
	lookup := home(t, "claude", file(t, "claude", time.Now().Add(-time.Hour)))
	path := open(t, "claude", lookup, "").Path
	theirs := strings.NewReplacer(oldAccess, "their-access", oldRefresh, "their-refresh").Replace(file(t, "claude", time.Now().Add(time.Hour)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := os.WriteFile(path, []byte(theirs), 0o600); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, `{"access_token":%q,"refresh_token":%q}`, newAccess, newRefresh)
	}))
	defer s.Close()
	l := open(t, "claude", lookup, s.URL)
	before, _ := l.Token()
	after, err := l.Renew(t.Context(), before.Serial)
	if b, _ := os.ReadFile(path); err != nil || after.Value != "their-access" || string(b) != theirs {
		t.Errorf("%+v, %v\n%s", after, err, b)
	}
}

// A provider that refuses is asked once, and what it said, and the tokens, are in no error;
// the file stays.
func TestRenewFails(t *testing.T) {
	for what, answer := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":"invalid_grant `+oldRefresh+`"}`, 400)
		},
		"no token":  func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"refresh_token":"x"}`) },
		"two lines": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"access_token":"a\nb"}`) },
		"no JSON":   func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, oldRefresh) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"nobody here": nil,
	} {
		n := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n++; r.URL.Path == "/elsewhere" {
				t.Errorf("%s: the refresh token went elsewhere", what)
			}
			if answer != nil {
				answer(w, r)
			}
		}))
		if answer == nil {
			s.Close()
		} else {
			defer s.Close()
		}
		content := file(t, "claude", time.Now().Add(-time.Hour))
		l := open(t, "claude", home(t, "claude", content), s.URL)
		before, _ := l.Token()
		for range 2 {
			_, err := l.Renew(t.Context(), before.Serial)
			if err == nil || strings.Contains(err.Error(), oldRefresh) || strings.Contains(err.Error(), oldAccess) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if b, _ := os.ReadFile(l.Path); string(b) != content || n > 1 {
			t.Errorf("%s: asked %d times; the file is\n%s", what, n, b)
		}
		if left, _ := os.ReadDir(filepath.Dir(l.Path)); len(left) != 1 {
			t.Errorf("%s: left are %v", what, left)
		}
	}
	l := open(t, "google", home(t, "google", file(t, "google", time.Now().Add(-time.Hour))), "")
	if _, err := l.Renew(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "gemini") {
		t.Error(err)
	}
}

// What is inside has the shape of the host's, and no secret of it.
func TestInside(t *testing.T) {
	const placeholder = "caisson-secret-x"
	for name, want := range map[string]string{"claude": `"subscriptionType": "max"`, "chatgpt": `"account_id": "acct-1"`} {
		l := open(t, name, home(t, name, file(t, name, time.Now())), "")
		b, err := l.Inside(placeholder)
		if err != nil {
			t.Fatal(err)
		}
		for _, not := range []string{oldAccess, oldRefresh, "another-secret", "somebody", jwt(t, oldAccess, time.Now())} {
			if strings.Contains(string(b), not) {
				t.Errorf("%s: %s is inside", name, not)
			}
		}
		d, err := parse(b)
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.provider.read(d)
		if err != nil || s.access != placeholder || s.refresh != worthless || s.due(time.Now().Add(365*24*time.Hour)) || !strings.Contains(string(b), want) {
			t.Errorf("%s: %+v, %v\n%s", name, s, err, b)
		}
		if name == "chatgpt" {
			var c chatGPTLogin
			var claims map[string]json.RawMessage
			if err := d.get(chatGPTKey, &c); err != nil || readClaims(c.IDToken, &claims) != nil || len(claims) != 2 || strings.Contains(string(claims[authClaim]), "user_id") {
				t.Errorf("%v, %v", claims, err)
			}
		}
	}
	if env := Env("google", placeholder); env["GOOGLE_CLOUD_ACCESS_TOKEN"] != placeholder || Env("claude", placeholder) != nil {
		t.Error(env)
	}
}

func TestAbsent(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	if _, err := Open("claude", none); !errors.Is(err, ErrAbsent) {
		t.Error(err)
	}
	for name, content := range map[string]string{"claude": `{"mcpOAuth":{}}`, "chatgpt": `{"OPENAI_API_KEY":"sk-x","tokens":null}`, "google": `{}`} {
		if _, err := Open(name, home(t, name, content)); !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open("claude", home(t, "claude", "secret words")); err == nil || errors.Is(err, ErrAbsent) || strings.Contains(err.Error(), "secret words") {
		t.Error(err)
	}
	if _, err := Open("other", none); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// A link to the file stays one.
func TestLinkStays(t *testing.T) {
	lookup := home(t, "claude", file(t, "claude", time.Now().Add(-time.Hour)))
	real := open(t, "claude", lookup, "").Path
	moved := filepath.Join(t.TempDir(), "login.json")
	if err := errors.Join(os.Rename(real, moved), os.Symlink(moved, real)); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"access_token":%q}`, newAccess) }))
	defer s.Close()
	l := open(t, "claude", lookup, s.URL)
	if _, err := l.Renew(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(real)
	if b, _ := os.ReadFile(moved); err != nil || info.Mode()&os.ModeSymlink == 0 || !strings.Contains(string(b), newAccess) || !strings.Contains(string(b), oldRefresh) {
		t.Errorf("%v, %v\n%s", info, err, b)
	}
}

// Whatever a login's file is, and whatever a provider says, nothing of it is inside but the
// account's number and plan.
func FuzzInside(f *testing.F) {
	for _, name := range []string{"claude", "chatgpt", "google"} {
		f.Add(file(f, name, time.Now()))
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parse([]byte(text))
		if err != nil {
			return
		}
		for name, p := range providers() {
			s, err := p.read(d)
			if err != nil || p.inside == nil || len(s.access) < 8 {
				continue
			}
			v, err := p.inside(d, "caisson-secret-x", time.Now())
			if err != nil {
				continue
			}
			m := v
			b, err := marshal(m)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			inside, err := parse(b)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got, err := p.read(inside); err != nil || got.access != "caisson-secret-x" || got.refresh != worthless {
				t.Fatalf("%s: %+v, %v", name, got, err)
			}
		}
	})
}
