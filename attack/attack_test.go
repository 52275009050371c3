// SPDX-License-Identifier: Apache-2.0

//go:build linux

package attack_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/attack"
	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/cli"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
)

// again makes the test binary a caisson.
const again = "CAISSON_ATTACK_AGAIN"

func TestMain(m *testing.M) {
	caisson.Reexec()
	faketest.Init()
	if len(os.Args) > 1 && os.Args[1] == probe.Word {
		os.Exit(probe.Main(os.Args[2:]))
	}
	if state := os.Getenv(again); state != "" {
		os.Setenv("CAISSON_STATE", state)
		drivers := caisson.Drivers
		if os.Getenv(ownNetwork) != "" {
			drivers = func() map[string]sandbox.Driver { return map[string]sandbox.Driver{"gvisor": nothing(nil)} }
		}
		os.Exit(cli.Main(os.Args, drivers))
	}
	os.Exit(m.Run())
}

// run attacks a level made of drivers.
func run(t *testing.T, drivers map[string]sandbox.Driver, only ...string) *attack.Report {
	t.Helper()
	return runBy(t, drivers, nil, only...)
}

// runBy puts something of the test's in front of the session.
func runBy(t *testing.T, drivers map[string]sandbox.Driver, change func(attack.Doer) attack.Doer, only ...string) *attack.Report {
	t.Helper()
	dir := t.TempDir()
	state, err := store.Open(store.Options{Dir: dir + "/state"})
	if err != nil {
		t.Fatal(err)
	}
	journal, err := audit.Open(t.Context(), audit.Options{Dir: state.Path()})
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.New(session.Options{Drivers: drivers, Policy: p, Journal: journal, State: session.DirState(state)})
	if err != nil {
		t.Fatal(err)
	}
	program := program(t)
	doer := attack.Doer(s)
	if change != nil {
		doer = change(doer)
	}
	r, err := attack.Run(t.Context(), attack.Options{
		Session: doer, Isolation: "gvisor", State: state.Path(), Program: program, Only: only,
		Again: func(args ...string) *exec.Cmd {
			cmd := exec.Command(program, args...)
			cmd.Env = append(os.Environ(), again+"="+dir+"/second")
			return cmd
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGVisor attacks the default level: nothing is breached.
func TestGVisor(t *testing.T) {
	for _, f := range run(t, caisson.Drivers()).Cases {
		t.Run(f.ID, func(t *testing.T) {
			t.Logf("%s: %s %s", f.Title, f.Verdict, f.Reason)
			if f.Verdict == attack.Breach || f.Verdict == attack.Unclear {
				t.Fail()
			}
		})
	}
}

func TestGVisorAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestGVisor") }

// program is this binary, where the user who runs it may open it by its name.
func program(t *testing.T) string {
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(name); err == nil {
		f.Close()
		return name
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	name = filepath.Join(t.TempDir(), "caisson")
	to, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, self); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}
