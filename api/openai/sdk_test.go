// SPDX-License-Identifier: Apache-2.0

package openai_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestClient runs testdata/sdk: OpenAI's official client, unmodified, against a
// built caisson serve and its default level. CAISSON_TEST_BINARY names the binary,
// make test-openai sees to the client.
func TestClient(t *testing.T) {
	binary := os.Getenv("CAISSON_TEST_BINARY")
	if binary == "" {
		t.Skip("make test-openai runs it")
	}
	state := filepath.Join(t.TempDir(), "state")
	caisson := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "CAISSON_STATE="+state)
		cmd.Stderr = os.Stderr
		return cmd
	}
	key := func(name string) string {
		out, err := caisson("keys", "create", "--name", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	mine, other := key("mine"), key("other")
	url := start(t, caisson("serve", "--listen", "127.0.0.1:0"))
	cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-concurrency=1")
	cmd.Dir = "testdata/sdk"
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+url+"/v1", "OPENAI_API_KEY="+mine, "CAISSON_OTHER_KEY="+other)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !regexp.MustCompile(`(?m)^(# |ℹ )pass [1-9]`).Match(out) {
		t.Errorf("nothing passed:\n%s", out)
	}
}

// start starts a daemon and returns its URL. At the end of the test it has to end
// well.
func start(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "E2B_API_URL="); ok {
			return url
		}
	}
	t.Fatal("it says no URL")
	return ""
}
