// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package drivertest is the conformance suite: what every level of isolation
// must do, said once. A level's own test file is one screen:
//
//	func TestMain(m *testing.M) { caisson.Reexec(); os.Exit(m.Run()) }
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{New: func(testing.TB) sandbox.Driver { return gvisor.New(gvisor.Options{}) }})
//	}
//
//	func TestConformanceAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestConformance") }
//
// The suite knows a level only by its contract. It builds fixtures as the session does, with the host's toolchain as
// root, and tries everything on each road that a level has: the one-shot (sandbox.Runner), the living sandbox with its
// guest agent, and the one-shot whose sandbox was made ahead (sandbox.Preparer). What a level says it cannot enforce on
// this host (Capabilities.Limits) is not demanded of it; it must then refuse the limit by name when it was written
// down.
//
// Inside, the tests use sh, coreutils, util-linux and python3 of the host.
package drivertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
)

// Harness tells the suite about one level.
type Harness struct {
	// New makes the driver under test. It is called once.
	New func(testing.TB) sandbox.Driver
	// Level is what the level is called in docs/levels.md where its own name does
	// not tell it apart from another; the driver's name when empty.
	Level string
	// OnImage says that the level shows nothing of this host: fixtures are made of an
	// image of its programs, and what mounts something is not tried.
	OnImage bool
	// Copies says that such a level mounts copies of this host's files, which is tried.
	Copies bool
	// Lingers says that a connection of before a restore is reset once something is sent on it.
	Lingers bool
	// Shm is how large /dev/shm is whatever it was to be; 0 is as large as that.
	Shm int64
	// Refuses says which file names it refuses to mount, by name; nil is none.
	Refuses func(name string) bool
}

// runLimit is how long any one run of a test may take: much longer where the processor
// is emulated, as the guest of make conformance-v2 says.
var runLimit = 2 * time.Minute * slowness()

func slowness() time.Duration {
	if n, err := strconv.Atoi(os.Getenv("V2_SLOW")); err == nil && n > 0 {
		return time.Duration(n)
	}
	return 1
}

// suite is one Run.
type suite struct {
	driver sandbox.Driver
	caps   sandbox.Capabilities
	odd    func(name string) bool // file names that the level refuses
	shm    int64                  // see Harness.Shm
	cache  string                 // image.Host's
	dir    string                 // for what tests need on the host; reachable by the sandbox's uids
	tag    string                 // in the ID of every sandbox of ours: others may be running too
	roads  []road
	// programs is the image of this host's programs, where fixtures are made of it.
	programs  *image.Stored
	mountless bool   // nothing of this host is mounted
	copies    bool   // what is mounted are copies
	lingers   bool   // see Harness.Lingers
	lack      string // why the test that runs now cannot be kept here
	fewer     bool   // it tries less than is promised: see together
}

// test is one promise of the contract.
type test struct {
	name string
	run  func(*testing.T, *suite, road)
	// once says that it matters on which road it runs; otherwise it runs on all.
	only string
}

// theme is a chapter of the suite.
type theme struct {
	name  string
	tests []test
	// made says that the promises are about how the world is made, which is the
	// same ahead: tried on that road only with -all-roads.
	made bool
	// inside says that the promises are kept in the sandbox, by its kernel and its
	// agent, which are the same for every user that starts it: with -short they
	// are tried as root alone.
	inside bool
}

// allRoads costs some minutes.
var allRoads = flag.Bool("all-roads", false, "try the chapters about a sandbox's world in sandboxes made ahead, too")

// themes are in the order in which they are tried.
func themes() []theme {
	return []theme{
		{name: "Identity", tests: slices.Concat(identityTests, nameTests)},
		{name: "Root", tests: rootTests, made: true},
		{name: "Image", tests: imageTests, made: true},
		{name: "Network", tests: networkTests},
		{name: "Scratch", tests: scratchTests},
		{name: "Stdio", tests: stdioTests, inside: true},
		{name: "Exit", tests: exitTests, inside: true},
		{name: "Limits", tests: limitTests},
		{name: "Mounts", tests: mountTests, made: true},
		{name: "Changes", tests: changeTests},
		{name: "Masks", tests: maskTests, made: true},
		{name: "Programs", tests: programTests, made: true, inside: true},
		{name: "Signals", tests: signalTests, inside: true},
		{name: "Terminal", tests: terminalTests, inside: true},
		{name: "Lifetime", tests: lifetimeTests},
		{name: "Pause", tests: pauseTests},
		{name: "Adopt", tests: adoptTests},
		{name: "Refusals", tests: refusalTests, made: true},
	}
}

// Run runs the whole suite on one level.
func Run(t *testing.T, h Harness) {
	s := &suite{driver: h.New(t), odd: h.Refuses, shm: h.Shm, lingers: h.Lingers, tag: rand.Text()[:10]}
	if dir := os.Getenv(ownerEnv); dir != "" {
		s.cache, s.dir = filepath.Join(dir, "cache"), dir
		if h.OnImage {
			s.caps, _ = s.driver.Probe(t.Context())
			s.onImage(t, h)
		}
		s.beOwner(t, dir)
		return
	}
	var err error
	if s.caps, err = s.driver.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.caps.Unusable != "" {
		t.Fatalf("%s cannot run here: %s (%s)", s.driver.Name(), s.caps.Unusable, s.caps.Remedy)
	}
	t.Logf("%s, as uid %d", s.caps.Engine, os.Geteuid())
	for _, name := range sandbox.LimitNames() {
		if _, ok := s.caps.Limits[name]; !ok {
			t.Errorf("Probe says nothing about the limit %q", name)
		}
	}
	// Not t.TempDir: it is 0700, which hides mounted files from a sandbox that
	// has a uid of its own.
	if s.dir, err = os.MkdirTemp("", "drivertest-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(s.dir); err != nil {
			t.Errorf("something is left that cannot be removed: %v", err)
		}
	})
	if err := os.Chmod(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.cache = filepath.Join(s.dir, "cache")
	if h.OnImage {
		s.onImage(t, h)
	}
	s.plantCanaries(t)
	s.roads = roadsOf(s.driver)
	column, whole := newColumn(cmp.Or(h.Level, s.driver.Name()), s.caps), true
	for _, theme := range themes() {
		if theme.inside && testing.Short() && os.Geteuid() != 0 {
			whole = false
			continue
		}
		t.Run(theme.name, func(t *testing.T) {
			for _, test := range theme.tests {
				cell, ran := s.try(t, test, theme.made && !*allRoads)
				cell.Name = theme.name + ": " + test.name
				if ran {
					column.Promises = append(column.Promises, cell)
					column.tell(t, cell)
				}
				whole = whole && ran
			}
		})
	}
	if whole && !t.Failed() && len(column.Lacks("")) == 0 {
		column.publish(t)
	}
}

// try runs one test on the roads that it is for, and not on the one ahead where
// made says so. ran is false when -test.run, or -short, left one out, and when one failed.
func (s *suite) try(t *testing.T, test test, made bool) (_ Cell, ran bool) {
	cell, ran := Cell{State: kept}, true
	for _, r := range s.roads {
		if test.only != "" && test.only != r.name || made && r.name == ahead {
			continue
		}
		if test.only == "" && spared(r) {
			ran = false
			continue
		}
		began := false
		held := t.Run(test.name+"/"+r.name, func(t *testing.T) {
			began, s.lack, s.fewer = true, "", false
			defer func() {
				if t.Skipped() {
					cell.State, cell.Why = notHere, s.lack
				}
			}()
			before := s.look(t)
			test.run(t, s, r)
			if !t.Failed() { // what a failed test leaves is no news
				s.nothingLeft(t, before)
			}
		})
		ran = ran && began && held && !s.fewer
	}
	return cell, ran
}

// spared says that a road is left out with -short: what an ordinary user's sandbox
// differs in is how it is made, which is much the same on each road, and root tries
// all. The one-shot is: as an ordinary user the command line's scripts and the
// escape suite are made of them.
func spared(r road) bool {
	return testing.Short() && os.Geteuid() != 0 && r.name == oneShot
}

// enforced says whether a limit holds at all on this host, exactly or coarsely.
func (s *suite) enforced(name sandbox.LimitName) bool {
	e := s.caps.Limits[name].Enforcement
	return e == sandbox.Enforced || e == sandbox.Emulated
}

// need ends a test of a limit that this level cannot enforce on this host. The
// theme Refusals tests that it says so.
func (s *suite) need(t *testing.T, name sandbox.LimitName) {
	t.Helper()
	if !s.enforced(name) {
		s.lacks(t, string(name)+" is off: "+s.caps.Limits[name].Detail)
	}
}

// lacks ends a test of what this level says it does not have, for that reason.
func (s *suite) lacks(t *testing.T, why string) {
	t.Helper()
	s.lack = why
	t.Skip(why)
}

// path makes a place on the host for one test.
func (s *suite) path(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(s.dir, "test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// timeout is the usual context of a run.
func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	t.Cleanup(cancel)
	return ctx
}

func has(names []sandbox.LimitName, name sandbox.LimitName) bool { return slices.Contains(names, name) }
