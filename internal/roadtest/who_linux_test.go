// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/api/e2b"
	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/approval/approvaltest"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
)

// shownClient is a client of E2B's API to one sandbox, each of whose questions
// is answered with yes.
type shownClient struct {
	url, id, token string
	shown          <-chan string // the questions
}

// openShown makes a sandbox of a level, under a policy that asks before cat.
func openShown(t *testing.T, level string) *shownClient {
	t.Helper()
	var approvals *question.Approvals
	under := offersRoot(t, "isolation: "+level+"\nuser: sudoer\ncommands: {ask: [\"cat *\"]}\napprovals: {channels: [web], timeout: 5m}")
	l := openLiving(t, filepath.Join(t.TempDir(), "state"), level, under, func(o *persistent.SandboxesOptions) {
		approvals = question.New(question.Options{Dir: o.State.Path(), Journal: o.Journal})
		o.Approvals = approvals
	})
	c := &shownClient{shown: sayYes(t, approvals)}
	keys, err := persistent.OpenKeys(l.reg, "")
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := keys.Create(t.Context(), "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	handler := e2b.New(e2b.Options{Sandboxes: l.Sandboxes, Keys: keys, Domain: "localhost:1", Memory: &api.Memory{}})
	server := httptest.NewServer(handler)
	t.Cleanup(func() { server.Close(); handler.Close() })
	c.url = server.URL
	var made struct {
		ID    string `json:"sandboxID"`
		Token string `json:"envdAccessToken"`
	}
	if err := json.Unmarshal(c.send(t, "/v2/sandboxes", map[string]string{"X-API-Key": key}, `{"templateID":"base"}`), &made); err != nil || made.ID == "" {
		t.Fatalf("%+v, %v", made, err)
	}
	c.id, c.token = made.ID, made.Token
	return c
}

// sayYes answers every question with yes, and returns each as it was shown.
func sayYes(t *testing.T, approvals *question.Approvals) <-chan string {
	t.Helper()
	t.Cleanup(func() { approvals.Close() })
	store := approvaltest.Store(t, approvals)
	ada := approvaltest.Ada(t, store, approval.Web)
	return approvaltest.SayYes(t, store, func(ctx context.Context, r *approval.Request) error {
		_, err := approvals.Answer(ctx, ada, r.ID, question.Answer{Yes: true, Digest: r.Digest})
		return err
	})
}

func (c *shownClient) send(t *testing.T, path string, header map[string]string, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", c.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// run starts a shell's line as a user, and returns what it wrote, and the code of why
// it did not.
func (c *shownClient) run(t *testing.T, user, cwd, line string) (said, code string) {
	t.Helper()
	q, _ := json.Marshal(map[string]any{"process": map[string]any{"cmd": "sh", "args": []string{"-c", line}, "cwd": cwd}, "stdin": false})
	h := map[string]string{"E2b-Sandbox-Id": c.id, "E2b-Sandbox-Port": "49983", "X-Access-Token": c.token, "Content-Type": "application/connect+json"}
	if user != "" {
		h["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"))
	}
	answer := c.send(t, "/process.Process/Start", h, string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(q))))+string(q))
	for len(answer) >= 5 {
		n := binary.BigEndian.Uint32(answer[1:])
		var e struct {
			Event struct {
				Data struct{ Stdout, Stderr []byte }
			}
			Error struct{ Code string }
		}
		if err := json.Unmarshal(answer[5:5+n], &e); err != nil {
			t.Fatalf("%s: %q %v", line, answer, err)
		}
		said, code = said+string(e.Event.Data.Stdout)+string(e.Event.Data.Stderr), code+e.Error.Code
		answer = answer[5+n:]
	}
	return said, code
}

// What runs is what an approver was shown: by the word of the program itself, who it
// is, where, and what the file is that it names. Who is not shown does not run.
func TestWhoRunsIsWhoWasShown(t *testing.T) {
	for level, users := range map[string]map[string]string{
		"process": {"": "", "user": "", "root": "unimplemented", "nobody": "unauthenticated", "daemon": "unauthenticated"},
		"gvisor":  {"": "", "user": "", "root": "", "nobody": "unauthenticated", "daemon": "unauthenticated"},
	} {
		t.Run(level, func(t *testing.T) {
			c := openShown(t, level)
			for user, refused := range users {
				for _, cwd := range []string{"", "sub", "/tmp"} {
					if refused == "" {
						prepare := `mkdir -p sub; [ -e /tmp/run.txt ] || echo all > /tmp/run.txt; for d in . sub; do echo "$(id -u) $d" > $d/run.txt; done`
						if said, code := c.run(t, user, "~", prepare); said != "" || code != "" {
							t.Fatalf("%q prepares: %q %s", user, said, code)
						}
					}
					said, code := c.run(t, user, cwd, "id -un; pwd; cat run.txt")
					if code != refused || code != "" && said != "" {
						t.Errorf("%q in %q: %q %s, want %q", user, cwd, said, code, refused)
					}
					if code != "" {
						continue
					}
					view, facts := <-c.shown, strings.SplitN(said, "\n", 3)
					if len(facts) != 3 || facts[2] == "" {
						t.Errorf("%q in %q says %q", user, cwd, said)
						continue
					}
					sum := sha256.Sum256([]byte(facts[2]))
					for _, part := range []string{"user:\n  │ " + facts[0] + "\n", "directory:\n  │ " + facts[1] + "\n",
						"run.txt is " + facts[1] + "/run.txt\n  │ sha256:" + hex.EncodeToString(sum[:]) + ","} {
						if !strings.Contains(view, part) {
							t.Errorf("%q in %q says %q, and was shown as\n%s\nwant %q", user, cwd, said, view, part)
						}
					}
				}
			}
			if len(c.shown) > 0 {
				t.Errorf("asked, too: %s", <-c.shown)
			}
		})
	}
}
