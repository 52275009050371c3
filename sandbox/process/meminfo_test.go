// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/process"
)

func TestMemoryShownAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestMemoryShown") }

// Programs see their limit as the machine's memory, and nothing of the host's there.
func TestMemoryShown(t *testing.T) {
	d := process.New(process.Options{})
	for name, run := range roads {
		var out, trouble bytes.Buffer
		res, err := run(t.Context(), d, fixture(t), &sandbox.Exec{
			Argv: []string{"/bin/sh", "-c", "cat /proc/meminfo; echo >/proc/meminfo; rm -f /proc/meminfo; umount /proc/meminfo; ls -A /dev"},
			Dir:  "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &trouble,
		})
		shown := out.String()
		if err != nil || !strings.HasPrefix(shown, "MemTotal:         262144 kB\nMemFree:          262144 kB\nMemAvailable:     262144 kB\n") ||
			!strings.Contains(shown, "SwapTotal:             0 kB\n") || strings.Contains(shown, ".meminfo") {
			t.Errorf("%s: %+v, %v: %s", name, res, err, shown)
		}
		if n := strings.Count(trouble.String(), "\n"); n != 3 {
			t.Errorf("%s: it can be changed: %s", name, trouble.String())
		}
	}
}
