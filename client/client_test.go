// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/api/v1"
	"github.com/caisson-run/caisson/client"
	"github.com/caisson-run/caisson/sandbox"
)

func TestMain(m *testing.M) {
	apitest.Init()
	// net/http lets a connection linger for half a second after its last answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func dial(t *testing.T, policy string) (*client.Client, *apitest.Server) {
	t.Helper()
	s := apitest.Start(t, policy)
	c, err := client.New(client.Options{URL: s.URL, Key: s.Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, s
}

func make1(t *testing.T, c *client.Client, w client.Create) *client.Sandbox {
	t.Helper()
	b, err := c.Create(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// All that a client can ask of a daemon, against one.
func TestClient(t *testing.T) {
	c, _ := dial(t, "")
	ctx := t.Context()
	b := make1(t, c, client.Create{
		Name: "mine", Metadata: map[string]string{"a": "b=c"}, Env: map[string]string{"V": "1"}, Timeout: client.In(10 * time.Minute), OnTimeout: "pause",
		Limits: &client.Limits{Memory: 128 << 20},
	})
	if b.State != "running" || b.Limits.Memory != 128<<20 || b.OnTimeout != "pause" || b.Ends.Before(time.Now()) || b.Posture.Network != "none" {
		t.Errorf("%+v", b)
	}
	if again, err := c.Create(ctx, client.Create{Name: "mine"}); err != nil || again.ID != b.ID {
		t.Error(again, err)
	}
	if p, err := c.List(ctx, client.Filter{Metadata: map[string]string{"a": "b=c"}, States: []string{"running", "paused"}, OldestFirst: true, Limit: 1}); err != nil || len(p.Sandboxes) != 1 || p.Sandboxes[0].ID != b.ID || p.Running != 1 {
		t.Error(p, err)
	}
	r, err := c.Exec(ctx, b.ID, client.Exec{Shell: `echo "$V"; printf '\377' >&2; exit 3`})
	if err != nil || string(r.Stdout) != "1\n" || string(r.Stderr) != "\xff" || r.ExitCode == nil || *r.ExitCode != 3 || r.Status != "error" {
		t.Error(r, err)
	}
	if all, next, err := c.Logs(ctx, b.ID, 0, time.Second); err != nil || len(all) != 1 || all[0].Stdout != "1\n" || all[0].Stderr != "\uFFFD" || *all[0].ExitCode != 3 || next != 1 {
		t.Error(all, next, err)
	}
	if x, err := c.Extend(ctx, b.ID, time.Hour); err != nil || time.Until(x.Ends) < 59*time.Minute {
		t.Error(x, err)
	}
	if x, err := c.Pause(ctx, b.ID); err != nil || x.State != "paused" || x.Kept != "memory" {
		t.Error(x, err)
	}
	if _, err := c.Exec(ctx, b.ID, client.Exec{Shell: "true"}); !errors.Is(err, sandbox.ErrConflict) {
		t.Error(err)
	}
	if x, err := c.Resume(ctx, b.ID, 0); err != nil || x.State != "running" || x.Resumed != 1 {
		t.Error(x, err)
	}
	if all, err := c.Usage(ctx, b.ID, time.Time{}); err != nil || len(all) == 0 || all[len(all)-1].Memory == nil {
		t.Error(all, err)
	}
	if p, err := c.Port(ctx, b.ID, 80); err != nil || !strings.HasPrefix(p.URL, "http://80-"+b.ID) || p.Headers["E2b-Sandbox-Port"] != "80" {
		t.Error(p, err)
	}
	if _, err := c.Snapshot(ctx, b.ID, "s"); !errors.Is(err, sandbox.ErrUnsupported) || sandbox.Hint(err) == "" {
		t.Error(err)
	}
	if _, err := c.Fork(ctx, b.ID, 2, 0); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Error(err)
	}
	if all, err := c.Snapshots(ctx, b.ID); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
	if err := c.DeleteSnapshot(ctx, "snothing"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
	if x, err := c.SetNetwork(ctx, b.ID, client.Reach{}); err != nil || len(x.Network) != 0 {
		t.Error(x, err)
	}
	if _, err := c.SetNetwork(ctx, b.ID, client.Reach{Allow: []string{"example.com"}}); !errors.Is(err, sandbox.ErrDenied) {
		t.Error(err)
	}
	if r, err := c.Run(ctx, client.Run{Code: "print(6*7)", Language: "python"}); err != nil || string(r.Stdout) != "42\n" || r.Posture == nil {
		t.Error(r, err)
	}
	if err := c.Kill(ctx, b.ID); err != nil {
		t.Error(err)
	}
	var e *client.Error
	if _, err := c.Get(ctx, b.ID); !errors.Is(err, sandbox.ErrNotFound) || !errors.As(err, &e) || e.Status != 404 {
		t.Error(err)
	}
	if all, next, err := c.Events(ctx, b.ID, 0, time.Second); err != nil || len(all) != 5 || all[3].Kind != "network" || all[4].Kind != "ended" || next != all[4].Seq {
		t.Error(all, next, err)
	}
}

// Files of any size go both ways.
func TestFiles(t *testing.T) {
	c, _ := dial(t, "")
	ctx := t.Context()
	b := make1(t, c, client.Create{})
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	if f, err := c.Files(b.ID).Write(ctx, "d/ä b&c", bytes.NewReader(big), 0o700); err != nil || f.Size != int64(len(big)) || f.Mode != "700" {
		t.Fatal(f, err)
	}
	f, err := c.Files(b.ID).Read(ctx, "d/ä b&c")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, big) {
		t.Error(len(got), err)
	}
	if err := c.Files(b.ID).Mkdir(ctx, "e"); err != nil {
		t.Error(err)
	}
	if err := c.Files(b.ID).Rename(ctx, "d/ä b&c", "e/f"); err != nil {
		t.Error(err)
	}
	if all, err := c.Files(b.ID).List(ctx, "e", 1); err != nil || len(all) != 1 || all[0].Name != "f" || all[0].Kind != "file" {
		t.Error(all, err)
	}
	if err := c.Files(b.ID).Remove(ctx, "e"); err != nil {
		t.Error(err)
	}
	if _, err := c.Files(b.ID).Stat(ctx, "e/f"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
}

// A program is spoken with while it runs, and ends with who speaks with it.
func TestAttach(t *testing.T) {
	c, _ := dial(t, "")
	b := make1(t, c, client.Create{})
	var out, errs bytes.Buffer
	r, err := c.Attach(t.Context(), b.ID, client.Exec{Command: []string{"sh", "-c", "cat; echo end >&2; exit 5"}},
		client.IO{Stdin: strings.NewReader(strings.Repeat("line\n", 50000)), Stdout: &out, Stderr: &errs})
	if err != nil || out.Len() != 250000 || errs.String() != "end\n" || r.ExitCode == nil || *r.ExitCode != 5 {
		t.Error(r, err, out.Len(), errs.String())
	}
	if r, err = c.Attach(t.Context(), b.ID, client.Exec{Command: []string{"cat"}}, client.IO{}); err != nil || r.Status != "success" {
		t.Error(r, err)
	}
	sizes, signals := make(chan client.Terminal, 1), make(chan string, 1)
	seen := &watch{on: map[string]func(){
		"5 50": func() { sizes <- client.Terminal{Rows: 6, Cols: 60} },
		"6 60": func() { signals <- "SIGTERM" },
	}}
	r, err = c.Attach(t.Context(), b.ID, client.Exec{Command: []string{"sh", "-c", "trap 'echo resized; stty size' WINCH; trap 'exit 8' TERM; stty size; while :; do :; done"},
		Terminal: &client.Terminal{Rows: 5, Cols: 50}}, client.IO{Stdout: seen, Resize: sizes, Signals: signals})
	if err != nil || r.ExitCode == nil || *r.ExitCode != 8 || !strings.Contains(seen.all, "6 60") {
		t.Error(r, err, seen.all)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.Attach(ctx, b.ID, client.Exec{Shell: "echo $$ > pid; echo ready; sleep 600"}, client.IO{Stdout: &watch{on: map[string]func(){"ready": cancel}}})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r, err = c.Exec(t.Context(), b.ID, client.Exec{Shell: "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done", Timeout: 120})
	if err != nil || r.Status != "success" {
		t.Error("it lives on:", r, err)
	}
	if _, err = c.Attach(t.Context(), "inothing", client.Exec{Shell: "true"}, client.IO{}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
}

// watch does something once a word was written.
type watch struct {
	all string
	on  map[string]func()
}

func (w *watch) Write(p []byte) (int, error) {
	w.all += string(p)
	for word, do := range w.on {
		if strings.Contains(w.all, word) {
			delete(w.on, word)
			do()
		}
	}
	return len(p), nil
}

// What the policy refuses says by which rule.
func TestDenied(t *testing.T) {
	c, _ := dial(t, "version: 1\ncommands: {allow: [echo]}\n")
	b := make1(t, c, client.Create{})
	for name, do := range map[string]func() error{
		"exec": func() error { _, err := c.Exec(t.Context(), b.ID, client.Exec{Command: []string{"cat"}}); return err },
		"attach": func() error {
			_, err := c.Attach(t.Context(), b.ID, client.Exec{Command: []string{"cat"}}, client.IO{})
			return err
		},
		"run": func() error {
			_, err := c.Run(t.Context(), client.Run{Exec: client.Exec{Command: []string{"cat"}}})
			return err
		},
	} {
		var e *sandbox.Error
		if err := do(); !errors.Is(err, sandbox.ErrDenied) || !errors.As(err, &e) || !strings.HasPrefix(e.Rule, "/p.yaml:2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The key goes to the daemon alone, and nowhere unread.
func TestKeyStays(t *testing.T) {
	var seen []string
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, r.Header.Get("Authorization")) }))
	defer thief.Close()
	redirects := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	defer redirects.Close()
	c, err := client.New(client.Options{URL: redirects.URL, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Get(t.Context(), "i0"); err == nil || len(seen) != 0 {
		t.Error(err, seen)
	}
	if _, err := c.Attach(t.Context(), "i0", client.Exec{}, client.IO{}); err == nil || len(seen) != 0 {
		t.Error(err, seen)
	}
	for address, want := range map[string]error{
		"http://example.com": sandbox.ErrDenied, "http://10.0.0.1:7420": sandbox.ErrDenied, "http://localhost.example.com": sandbox.ErrDenied,
		"https://example.com": nil, "http://localhost:1": nil, "http://127.9.9.9": nil, "http://[::1]:7420": nil,
		"ftp://localhost": sandbox.ErrInvalid, "localhost:7420": sandbox.ErrInvalid, "http://user@localhost": sandbox.ErrInvalid, "http://localhost?x": sandbox.ErrInvalid,
	} {
		if _, err := client.New(client.Options{URL: address, Key: "k"}); !errors.Is(err, want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, key := range []string{"", "a b", "a\r\nX: y"} {
		if _, err := client.New(client.Options{Key: key}); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, id := range []string{"", "../x", "a/b", "A", "i0?x"} {
		if _, err := c.Get(t.Context(), id); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// Who answers something else is told from a caisson.
func TestNoCaisson(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"a page":     func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"an error":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) },
		"nobody":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"an odd one": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"id":1}`) },
	} {
		s := httptest.NewServer(h)
		c, err := client.New(client.Options{URL: s.URL, Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), "i0"); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
		s.Close()
	}
}

// The client has every field that the daemon has, by the same name.
func TestSameWords(t *testing.T) {
	for _, pair := range [][2]reflect.Type{
		{reflect.TypeFor[v1.Sandbox](), reflect.TypeFor[client.Sandbox]()}, {reflect.TypeFor[v1.Create](), reflect.TypeFor[client.Create]()},
		{reflect.TypeFor[v1.Limits](), reflect.TypeFor[client.Limits]()}, {reflect.TypeFor[v1.Network](), reflect.TypeFor[client.Network]()},
		{reflect.TypeFor[v1.Exec](), reflect.TypeFor[client.Exec]()}, {reflect.TypeFor[v1.Run](), reflect.TypeFor[client.Run]()},
		{reflect.TypeFor[v1.Terminal](), reflect.TypeFor[client.Terminal]()}, {reflect.TypeFor[v1.Reading](), reflect.TypeFor[client.Reading]()},
		{reflect.TypeFor[v1.Event](), reflect.TypeFor[client.Event]()}, {reflect.TypeFor[v1.Snapshot](), reflect.TypeFor[client.Snapshot]()},
		{reflect.TypeFor[v1.File](), reflect.TypeFor[client.File]()}, {reflect.TypeFor[v1.Port](), reflect.TypeFor[client.Port]()},
		{reflect.TypeFor[v1.Log](), reflect.TypeFor[client.Log]()},
		{reflect.TypeFor[v1.Posture](), reflect.TypeFor[client.Posture]()}, {reflect.TypeFor[v1.Traffic](), reflect.TypeFor[client.Traffic]()},
	} {
		if a, b := words(pair[0]), words(pair[1]); a != b {
			t.Errorf("%s has %s, and the client's %s", pair[0], a, b)
		}
	}
	server := strings.NewReplacer("stdout stdout_base64 ", "", "stderr stderr_base64 ", "").Replace(words(reflect.TypeFor[v1.Result]()))
	if own := words(reflect.TypeFor[client.Result]()); own != server {
		t.Errorf("%s, and the client's %s", server, own)
	}
	var r client.Result
	if err := json.Unmarshal([]byte(`{"status":"error","stdout":"a","stderr_base64":"/w==","wall_ms":3}`), &r); err != nil || string(r.Stdout) != "a" || string(r.Stderr) != "\xff" || r.WallMS != 3 {
		t.Error(r, err)
	}
}

func words(t reflect.Type) string {
	s := ""
	for f := range t.Fields() {
		switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case f.Anonymous:
			s += words(f.Type)
		case name != "-":
			s += name + " "
		}
	}
	return s
}
