// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemon is a built caisson serve.
type daemon struct {
	cmd *exec.Cmd
	url string
}

// caissonBinary is the built program.
func caissonBinary(t *testing.T) string {
	t.Helper()
	if binary := os.Getenv("CAISSON"); binary != "" {
		return binary
	}
	binary := filepath.Join(t.TempDir(), "caisson")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/caisson-run/caisson/cmd/caisson").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// startDaemon starts one and waits until it answers.
func startDaemon(t *testing.T, binary, state string, args ...string) *daemon {
	t.Helper()
	d := &daemon{cmd: exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0", "--state", state}, args...)...)}
	d.cmd.Stderr = os.Stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // one that has ended already has been waited for
		d.cmd.Process.Kill()
		d.cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for d.url == "" && lines.Scan() {
		_, d.url, _ = strings.Cut(lines.Text(), " serves sandboxes at ")
	}
	if d.url == "" {
		t.Fatal("it does not serve")
	}
	go io.Copy(io.Discard, out)
	return d
}

// end ends it, and waits.
func (d *daemon) end(sig syscall.Signal) {
	d.cmd.Process.Signal(sig)
	d.cmd.Wait()
}

// ask makes a request with a key and reads a JSON answer into v, if not nil.
func (d *daemon) ask(t *testing.T, key, method, path, body string, v any) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if v != nil && len(b) > 0 {
		if err := json.Unmarshal(b, v); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
	}
	if res.StatusCode >= 400 {
		t.Logf("%s %s: %d %s", method, path, res.StatusCode, b)
	}
	return res.StatusCode
}

// A sandbox is there with its process, by our API and by E2B's, for its key alone,
// after its daemon was killed, and after one that was told to keep it was stopped; and
// when it is killed nothing is left. A daemon that gives no grace takes all with it.
func TestServeSurvivesKill(t *testing.T) {
	binary, state := caissonBinary(t), filepath.Join(t.TempDir(), "state")
	key := func(name string) string {
		out, err := exec.Command(binary, "keys", "create", "--state", state, "--name", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	mine, other := key("mine"), key("other")
	d := startDaemon(t, binary, state)
	var made struct {
		ID string `json:"sandboxID"`
	}
	if code := d.ask(t, mine, "POST", "/sandboxes", `{"templateID": "base", "timeout": 3600, "metadata": {"of": "the test"}}`, &made); code != 201 {
		t.Fatalf("create: %d", code)
	}
	sh := func(line string) string {
		t.Helper()
		var res struct {
			Status string `json:"status"`
			Stdout string `json:"stdout"`
		}
		body, _ := json.Marshal(map[string]any{"command": []string{"sh", "-c", line}})
		if code := d.ask(t, mine, "POST", "/v1/sandboxes/"+made.ID+"/exec", string(body), &res); code != 200 || res.Status != "success" {
			t.Fatalf("%s: %d %+v", line, code, res)
		}
		return strings.TrimSpace(res.Stdout)
	}
	who := sh(counting)
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		d.end(sig)
		d = startDaemon(t, binary, state, "--keep-running")
		if now := sh(counting); now != who {
			t.Errorf("restart %d: the process that counts was %s, now it is %s", i, who, now)
		}
		sh(`a=$(cat ~/count); until [ "$(cat ~/count)" -gt "$a" ]; do sleep 0.02; done`)
		var got struct {
			ID       string            `json:"sandboxID"`
			State    string            `json:"state"`
			Metadata map[string]string `json:"metadata"`
		}
		if code := d.ask(t, mine, "GET", "/sandboxes/"+made.ID, "", &got); code != 200 || got.State != "running" || got.Metadata["of"] != "the test" {
			t.Errorf("restart %d: E2B says %d, %+v", i, code, got)
		}
		for _, path := range []string{"/sandboxes/", "/v1/sandboxes/"} {
			if code := d.ask(t, other, "GET", path+made.ID, "", nil); code != 404 {
				t.Errorf("restart %d: another key gets %d of %s", i, code, path)
			}
		}
		var events struct {
			Events []struct{ Kind, Sandbox string } `json:"events"`
		}
		if code := d.ask(t, mine, "GET", "/v1/events?since=0", "", &events); code != 200 || len(events.Events) == 0 || events.Events[0].Kind != "adopted" {
			t.Errorf("restart %d: the events are %d, %+v", i, code, events)
		}
	}
	if code := d.ask(t, mine, "DELETE", "/v1/sandboxes/"+made.ID, "", nil); code != 204 {
		t.Errorf("kill: %d", code)
	}
	d.end(syscall.SIGTERM)
	noRuns(t, state)

	// Without a grace, and on a level whose sandboxes are their daemon's children.
	file := filepath.Join(t.TempDir(), "process.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nisolation: process\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--grace", "0"}, {"--policy", file}} {
		diesWith(t, mine, binary, state, args...)
	}
	verify := exec.Command(binary, "audit", "verify")
	verify.Env = append(os.Environ(), "CAISSON_STATE="+state)
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("audit verify: %v\n%s", err, out)
	}
}

// diesWith demands that a sandbox of a daemon that is killed is gone without a trace,
// and said to be: to its key, and in the record.
func diesWith(t *testing.T, key, binary, state string, args ...string) {
	t.Helper()
	args = append(args, "--pool", "0") // which would have directories of its own
	d := startDaemon(t, binary, state, args...)
	var made struct {
		ID string `json:"sandboxID"`
	}
	if code := d.ask(t, key, "POST", "/sandboxes", `{"templateID": "base", "timeout": 3600}`, &made); code != 201 {
		t.Fatalf("%s: create: %d", args, code)
	}
	if code := d.ask(t, key, "POST", "/v1/sandboxes/"+made.ID+"/exec", `{"shell": "sleep 4321 >/dev/null 2>&1 &"}`, nil); code != 200 {
		t.Fatalf("%s: exec: %d", args, code)
	}
	d.end(syscall.SIGKILL)
	d = startDaemon(t, binary, state, args...)
	noRuns(t, state)
	var why struct{ Detail string }
	if code := d.ask(t, key, "GET", "/v1/sandboxes/"+made.ID, "", &why); code != 404 || !strings.Contains(why.Detail, "could not run on without it") {
		t.Errorf("%s: %d, %s", args, code, why.Detail)
	}
	if kinds := recorded(t, state, made.ID); kinds["end_sandbox"] != 1 {
		t.Errorf("%s: of its life is recorded: %v", args, kinds)
	}
	d.end(syscall.SIGTERM)
	noRuns(t, state)
}

// noRuns waits until no sandbox has anything on the disk, nor in a control group.
func noRuns(t *testing.T, state string) {
	t.Helper()
	for late := time.After(time.Minute); ; {
		left, err := filepath.Glob(filepath.Join(state, "run", "sbx_*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-late:
			t.Fatal(fmt.Sprint("left behind: ", left))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
