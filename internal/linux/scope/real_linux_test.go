// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
)

// TestEnterForReal asks the real manager, as an ordinary user in a session
// without delegation; make test-v2 has one. The asking is done by another
// process, which is the one that moves.
func TestEnterForReal(t *testing.T) {
	if os.Getenv("V2GUEST") == "" {
		switch h := cgroup.Detect(); {
		case h.Why == "":
			t.Skip("needs a user session that may make no control groups")
		case Available() != nil:
			t.Skip(Available())
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "CAISSON_SCOPE_HELPER=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// enterForReal enters, and sets and reads back a limit in the scope.
func enterForReal() error {
	entered, err := Enter(context.Background())
	if err != nil || !entered {
		return fmt.Errorf("entered %v: %w", entered, err)
	}
	if again, err := Enter(context.Background()); again || err != nil {
		return fmt.Errorf("entered again %v: %w", again, err)
	}
	g, err := cgroup.Detect().Create("caisson-scope-test", cgroup.Limits{Memory: 64 << 20, CPUs: 0.5, Pids: 9})
	if err != nil {
		return err
	}
	for file, want := range map[string]string{"memory.max": "67108864", "cpu.max": "50000 100000", "pids.max": "9"} {
		if got, err := os.ReadFile(g.Dirs()[0] + "/" + file); err != nil || strings.TrimSpace(string(got)) != want {
			return errors.Join(fmt.Errorf("%s is %q, want %q", file, got, want), err)
		}
	}
	return g.Remove(context.Background())
}
