// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

// A limit that cannot be held refuses a request, unless that asks for best effort and the
// policy lets it. Block I/O is held back on cgroup v2 alone.
func TestBestEffort(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(policy, []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := caisson.Request{Isolation: "process", Command: []string{"true"}, Limits: caisson.Limits{IO: 50 << 20}}
	run := func(policy string) (*caisson.Result, error) {
		c, err := caisson.Open(t.Context(), caisson.Options{State: filepath.Join(t.TempDir(), "state"), Policy: policy})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.Run(t.Context(), r)
	}
	if _, err := run(""); err == nil {
		t.Skip("needs a host on which the process level holds no I/O limit")
	} else if !errors.Is(err, sandbox.ErrUnsupported) {
		t.Fatal(err)
	}
	r.BestEffort = true
	res, err := run("")
	if err != nil || res.Status != sandbox.StatusSuccess || res.Posture.Limits[sandbox.LimitIO] != sandbox.Off {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err = run(policy); err != nil || res.Status != sandbox.StatusDenied {
		t.Errorf("%+v, %v, and the policy does not allow it", res, err)
	}
}
