// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"crypto/rand"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// startDaemon starts caisson serve with the flags that it is given, until the
// script ends, and sets CAISSON_URL, CAISSON_API_KEY and DAEMON, which is its process id:
// daemon [FLAG...].
func startDaemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("daemon starts one")
	}
	ts.Setenv("CAISSON_API_KEY", "a-key-of-the-test-"+rand.Text())
	ts.Setenv("CAISSON_FAKE_AGENT", "1")
	path := ""
	for dir := range strings.SplitSeq(ts.Getenv("PATH"), ":") {
		if p, err := exec.LookPath(dir + "/caisson"); err == nil {
			path = p
			break
		}
	}
	cmd := exec.Command(path, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Args[0] = "caisson"
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "CAISSON_STATE", "CAISSON_API_KEY", "CAISSON_FAKE_AGENT", "CAISSON_FAKE_STUCK", "CAISSON_FAKE_LAYER", "CAISSON_TEST_BINARY"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Dir = ts.MkAbs(".")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	ts.Check(err)
	lines := bufio.NewScanner(out)
	url := ""
	for url == "" && lines.Scan() {
		_, url, _ = strings.Cut(lines.Text(), " serves sandboxes at ")
	}
	ended := make(chan error, 1)
	go func() {
		for lines.Scan() {
		}
		ended <- cmd.Wait()
	}()
	ts.Defer(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			ts.Logf("daemon: %v\n%s", err, said.String())
		}
	})
	if url == "" {
		ts.Fatalf("it does not serve")
	}
	ts.Setenv("CAISSON_URL", url)
	ts.Setenv("DAEMON", strconv.Itoa(cmd.Process.Pid))
}
