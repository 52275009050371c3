// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"log"
	"os"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// TestMain begins with Reexec, as every program that runs sandboxes does, and
// gives what it starts a state directory of its own.
func TestMain(m *testing.M) {
	caisson.Reexec()
	if os.Getenv(ownerDir) != "" { // which is all that it uses, and it is killed
		os.Exit(m.Run())
	}
	drivertest.UseDisk()
	dir, err := os.MkdirTemp("", "caisson-road")
	if err != nil {
		log.Fatal(err)
	}
	os.Setenv("CAISSON_STATE", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}
