// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// sharedEnv says that this is TestNothingShowsInSharedMounts where every mount
// is in a group of those that show each other's, as systemd has them.
const sharedEnv = "CAISSON_TEST_SHARED_MOUNTS"

// What is mounted for a sandbox must not show on the host, where the root's tree
// lies in a mount that is shared.
func TestNothingShowsInSharedMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone has mounts of its own to share")
	}
	if os.Getenv(sharedEnv) == "" {
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "shared", self(t),
			"-test.run=^TestNothingShowsInSharedMounts$", "-test.count=1")
		cmd.Env = append(os.Environ(), sharedEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	spec := fixture(t)
	before := table(t)
	if !strings.Contains(before, " shared:") {
		t.Fatal("no mount is shared")
	}
	during := ""
	res, err := process.New(process.Options{}).Run(t.Context(), spec, &sandbox.Exec{
		Argv: []string{"/bin/echo"}, Dir: "/tmp", Stdout: onWrite(func() { during = table(t) }),
	})
	if err != nil || res.Status != sandbox.StatusSuccess {
		t.Fatal(res, err)
	}
	if during != before {
		t.Errorf("while it ran the host had other mounts\n%s\nbefore\n%s", during, before)
	}
	if after := table(t); after != before {
		t.Errorf("after it the host has other mounts\n%s\nbefore\n%s", after, before)
	}
}

func self(t *testing.T) string {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func table(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
