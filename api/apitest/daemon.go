// SPDX-License-Identifier: Apache-2.0

package apitest

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

// Caisson is a built program with a state directory.
type Caisson struct {
	Binary string
	State  string
}

// BuiltCaisson is the program that CAISSON_TEST_BINARY names, with an empty state directory.
// Where it names none the test is skipped: target is make's that runs it.
func BuiltCaisson(t *testing.T, target string) Caisson {
	t.Helper()
	binary := os.Getenv("CAISSON_TEST_BINARY")
	if binary == "" {
		t.Skipf("make %s runs it", target)
	}
	return Caisson{binary, filepath.Join(t.TempDir(), "state")}
}

// Command is one that has yet to be started. What it says is wrong is the test's to
// show.
func (c Caisson) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.Binary, args...)
	cmd.Env = append(os.Environ(), "CAISSON_STATE="+c.State)
	cmd.Stderr = os.Stderr
	return cmd
}

// Key makes a key.
func (c Caisson) Key(t *testing.T, name string) string {
	t.Helper()
	out, err := c.Command("keys", "create", "--name", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// Serve starts a daemon on a port of its own choice and returns its URL when it
// answers. At the end of the test it has to end well.
func (c Caisson) Serve(t *testing.T, args ...string) (url string) {
	t.Helper()
	cmd := c.Command(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
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
		if _, url, ok := strings.Cut(lines.Text(), " serves sandboxes at "); ok {
			return url
		}
	}
	t.Fatal("it says no URL")
	return ""
}

// Of what Node.js 20 and 22 print by default.
var passed = regexp.MustCompile(`(?m)^(# |ℹ )pass [1-9]`)

// Node runs the tests in a folder, or those of the files among args, one after
// another by Node.js's own runner, with more in the environment. All have to pass,
// and one at least.
func Node(t *testing.T, dir string, env []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", append([]string{"--test", "--test-concurrency=1"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "TMPDIR="+t.TempDir()), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !passed.Match(out) {
		t.Errorf("nothing passed:\n%s", out)
	}
}
