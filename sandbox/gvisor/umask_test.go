// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

func TestOddUmaskAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestOddUmask") }

// Whatever its owner keeps from others with its umask, as services and root's shells
// often do, a sandbox is made, and programs inside have the usual one.
func TestOddUmask(t *testing.T) {
	for _, mask := range []int{0o027, 0o077} {
		w := fixture(t)
		w.Mounts = append(w.Mounts, sandbox.Mount{Source: open(t, "/usr"), Name: "/usr", Target: "/new/place", Dir: true}) // the root has none
		var out, errs bytes.Buffer
		was := unix.Umask(mask)
		_, err := gvisor.New(gvisor.Options{}).Run(t.Context(), w, &sandbox.Exec{
			Argv: []string{"sh", "-c", "umask; echo > /home/user/f; stat -c %a /home/user/f; ls -d /new/place/bin"},
			Dir:  "/home/user", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &errs,
		})
		unix.Umask(was)
		if err != nil || out.String() != "0022\n644\n/new/place/bin\n" {
			t.Errorf("umask %o: %q, %q, %v", mask, &out, &errs, err)
		}
	}
}
