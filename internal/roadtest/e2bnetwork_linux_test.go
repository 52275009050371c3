// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What E2B's clients send as network, and as allow_internet_access, opens and closes
// the way to real hosts: at the beginning, and while a sandbox lives.
func TestE2BNetwork(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		plugIn(t)
		dir := t.TempDir()
		file := filepath.Join(dir, "policy.yaml")
		if err := os.WriteFile(file, []byte("version: 1\nnetwork: {allow: [good.example.com, other.example.com]}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		binary, state := caissonBinary(t), filepath.Join(dir, "state")
		out, err := exec.Command(binary, "keys", "create", "--state", state, "--name", "mine").Output()
		if err != nil {
			t.Fatal(err)
		}
		key := strings.TrimSpace(string(out))
		d := startDaemon(t, binary, state, "--policy", file, "--pool", "0")
		// The daemon is killed at the end, and sandboxes outlive it.
		var ids []string
		defer func() {
			for _, id := range ids {
				if code := d.ask(t, key, "DELETE", "/sandboxes/"+id, "", nil); code != 204 {
					t.Errorf("kill %s: %d", id, code)
				}
			}
		}()
		create := func(more string) (id string) {
			t.Helper()
			var made struct {
				ID string `json:"sandboxID"`
			}
			if code := d.ask(t, key, "POST", "/v2/sandboxes", `{"templateID":"base"`+more+`}`, &made); code != 201 {
				t.Fatalf("create%s: %d", more, code)
			}
			ids = append(ids, made.ID)
			return made.ID
		}
		reached := func(id string) (names string) {
			t.Helper()
			body, _ := json.Marshal(map[string]any{"command": []string{"sh", "-c", `for n in good other evil; do
				curl -sS -m 20 http://$n.example.com/ 2>/dev/null | grep -q ' host' && printf '%s ' $n
			done; true`}})
			var res struct {
				Stdout string `json:"stdout"`
			}
			if code := d.ask(t, key, "POST", "/v1/sandboxes/"+id+"/exec", string(body), &res); code != 200 {
				t.Fatalf("exec: %d", code)
			}
			return strings.TrimSpace(res.Stdout)
		}
		for more, want := range map[string]string{
			``: "good other",
			`,"network":{"allowOut":["good.example.com"],"denyOut":["0.0.0.0/0"]}`: "good",
			`,"network":{"denyOut":["` + goodAddr + `"]}`:                          "",
			`,"allow_internet_access":true`:                                        "good other",
			`,"allow_internet_access":false`:                                       "",
		} {
			if got := reached(create(more)); got != want {
				t.Errorf("%s: it reaches %q, want %q", more, got, want)
			}
		}
		id := create(``)
		for _, c := range []struct{ body, want string }{
			{`{"allowOut":["other.example.com"],"denyOut":["0.0.0.0/0"]}`, "other"},
			{`{"allow_internet_access":false}`, ""},
			{`{}`, "good other"},
		} {
			if code := d.ask(t, key, "PUT", "/sandboxes/"+id+"/network", c.body, nil); code != 204 {
				t.Fatalf("%s: %d", c.body, code)
			}
			if got := reached(id); got != c.want {
				t.Errorf("after %s it reaches %q, want %q", c.body, got, c.want)
			}
		}
	})
}
