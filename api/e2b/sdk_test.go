// SPDX-License-Identifier: Apache-2.0

package e2b_test

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

// TestSDK runs the tests in testdata/sdk: E2B's official clients, unmodified,
// against a built caisson serve and its default level. CAISSON_TEST_BINARY names
// the binary, make test-e2b sees to the clients.
func TestSDK(t *testing.T) {
	binary := os.Getenv("CAISSON_TEST_BINARY")
	if binary == "" {
		t.Skip("make test-e2b runs it")
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
	url := serve(t, caisson("serve", "--listen", "127.0.0.1:0"))
	clients := []string{"e2b", "e2b-older"}
	if testing.Short() {
		clients = clients[:1]
	}
	for _, sdk := range clients {
		t.Run(sdk, func(t *testing.T) {
			args := []string{"--test", "--test-concurrency=1"}
			if testing.Short() {
				args = append(args, "--test-name-pattern=create, use, kill|a command|write and read|a terminal$|another key")
			}
			cmd := exec.CommandContext(t.Context(), "node", args...)
			cmd.Dir = "testdata/sdk"
			cmd.Env = append(os.Environ(), "E2B_SDK="+sdk, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_API_KEY="+mine, "CAISSON_OTHER_KEY="+other)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if !regexp.MustCompile(`(?m)^# pass [1-9]`).Match(out) {
				t.Errorf("nothing passed:\n%s", out)
			}
		})
	}
}

// serve starts a daemon and returns its URL. At the end of the test it has to
// end well.
func serve(t *testing.T, cmd *exec.Cmd) string {
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
