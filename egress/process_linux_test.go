// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/egress"
)

// A router of root's is a user of its own in each of its threads, without groups and
// rights: one that begins as that user, and one that becomes it, since its program is
// for its owner alone.
func TestUserOfItsOwn(t *testing.T) {
	const again = "CAISSON_TEST_PRIVATE"
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone gives its routers another user")
	}
	r, _ := startRouter(t, egress.Options{Rules: allow("localhost")})
	if ns, err := os.ReadFile("/proc/" + strconv.Itoa(r.PID()) + "/timerslack_ns"); err == nil && strings.TrimSpace(string(ns)) != "300000" {
		t.Errorf("its timers have %s ns", ns)
	}
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(r.PID()) + "/task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		has := map[string]string{}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			has[key] = strings.Join(strings.Fields(value), " ")
		}
		uid, _, _ := strings.Cut(has["Uid"], " ")
		four := strings.TrimSpace(strings.Repeat(uid+" ", 4))
		const none = "0000000000000000"
		if n, _ := strconv.Atoi(uid); n < 0x70000000 || has["Uid"] != four || has["Gid"] != four || has["Groups"] != "" ||
			has["CapPrm"] != none || has["CapEff"] != none || has["CapAmb"] != none || has["NoNewPrivs"] != "1" || has["Seccomp"] != "2" {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	if os.Getenv(again) != "" {
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	private := filepath.Join(t.TempDir(), "test")
	if out, err := exec.Command("install", "-m", "0700", exe, private).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(private, "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), again+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("a program for its owner alone: %v\n%s", err, out)
	}
}
