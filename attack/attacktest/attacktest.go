// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package attacktest runs the escape suite in tests, against levels as they are
// and against levels with protections taken out.
package attacktest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/attack"
	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/config"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/registry"
	"github.com/caisson-run/caisson/session/toolcall"
)

// Init makes the test binary a probe where it was started as one; it is called
// first in TestMain.
func Init() {
	if len(os.Args) > 1 && os.Args[1] == probe.Word {
		os.Exit(probe.Main(os.Args[2:]))
	}
}

// Level is what is attacked.
type Level struct {
	Driver sandbox.Driver
	// Doer, when set, puts something in front of the session.
	Doer func(attack.Doer) attack.Doer
	// Office, when set, changes what an Office is made of, and the Office.
	Office func(*session.Options, *attack.Office)
	// Unpack, when set, takes the place of the image store.
	Unpack func(ctx context.Context, archive, dir string) error
	// Again, when set, starts a caisson with this level on a state directory.
	Again func(program, state string, args ...string) *exec.Cmd
}

// Run attacks a level.
func Run(t *testing.T, l Level, only ...string) *attack.Report {
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
	s, err := session.New(session.Options{
		Drivers: map[string]sandbox.Driver{l.Driver.Name(): l.Driver}, Policy: p, Journal: journal, State: session.DirState(state),
	})
	if err != nil {
		t.Fatal(err)
	}
	o := attack.Options{Session: s, Isolation: l.Driver.Name(), State: state.Path(), Program: program(t), Only: only, Unpack: l.Unpack}
	o.Open = func(ctx context.Context, o attack.OfficeOptions) (*attack.Office, error) { return l.open(ctx, o) }
	if l.Doer != nil {
		o.Session = l.Doer(s)
	}
	if l.Again != nil {
		o.Again = func(args ...string) *exec.Cmd { return l.Again(o.Program, dir+"/second", args...) }
	}
	r, err := attack.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// open opens an Office on the level, as the command does.
func (l Level) open(ctx context.Context, o attack.OfficeOptions) (*attack.Office, error) {
	file, err := config.File(o.Policy)
	if err != nil {
		return nil, err
	}
	p, err := policy.New(policy.Options{File: file})
	if err != nil {
		return nil, err
	}
	state, err := store.Open(store.Options{Dir: o.Dir})
	if err != nil {
		return nil, err
	}
	journal, err := audit.Open(ctx, audit.Options{Dir: state.Path()})
	if err != nil {
		return nil, err
	}
	rates, err := registry.Open(ctx, state.Path())
	if err != nil {
		return nil, err
	}
	approvals := question.New(question.Options{Dir: state.Path(), Journal: journal})
	so := session.Options{
		Drivers: map[string]sandbox.Driver{l.Driver.Name(): l.Driver}, Policy: p, PolicyName: o.Policy, Journal: journal, State: session.DirState(state),
		Rates: rates, Approvals: approvals,
	}
	office := &attack.Office{}
	if l.Office != nil {
		l.Office(&so, office)
	}
	s, err := session.New(so)
	if err != nil {
		return nil, err
	}
	if office.Caller == nil {
		office.Caller = toolcall.Of(s)
	}
	office.Close = sync.OnceValue(func() error {
		return errors.Join(approvals.Close(), rates.Close(), journal.Close(), state.Close())
	})
	return office, nil
}

// Holds attacks a level and fails for each case that does not hold. Only cases
// that are known to need what some host lacks may be not applicable. With -short an
// ordinary user tries those that share a sandbox, and the limits that hold in another
// way without control groups: the others are kept by what root has tried, the kernel
// inside, the router and the session.
func Holds(t *testing.T, l Level) {
	needy := []string{"F06", "K14", "L01", "L02", "L03", "L10", "L12", "L13"}
	if l.Driver.Name() != "gvisor" {
		needy = append(append(needy, Network()...), "V01", "V03")
	}
	if l.Again == nil {
		needy = append(needy, "L08", "N07", "N12", "N16", "N17", "N18", "V01", "V02", "V03")
	}
	var only []string
	if testing.Short() && os.Geteuid() != 0 {
		only = append(OneSandbox(), "L01", "L02", "L03", "L10")
	}
	for _, f := range Run(t, l, only...).Cases {
		t.Run(f.ID, func(t *testing.T) {
			t.Logf("%s: %s %s", f.Title, f.Verdict, f.Reason)
			if f.Verdict != attack.Pass && (f.Verdict != attack.NotApplicable || !slices.Contains(needy, f.ID)) {
				t.Fail()
			}
		})
	}
}

// Red are the cases that were breached.
func Red(r *attack.Report) (ids []string) {
	for _, f := range r.Cases {
		if f.Verdict == attack.Breach {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

// HasRed attacks one sandbox of a level that has a protection out, as root, and
// demands that exactly the cases in want, by their IDs, are breached, and that
// none is unclear.
func HasRed(t *testing.T, d sandbox.Driver, want string) {
	t.Helper()
	// They are red where this kernel has the thing at all.
	mayBe := []string{"K01", "K02", "K03", "K06"}
	// S08 would knock at the metadata service of the machine's cloud.
	only := slices.DeleteFunc(OneSandbox(), func(id string) bool { return id == "S08" })
	r := Run(t, Level{Driver: d}, only...)
	ids := strings.Fields(want)
	got := slices.DeleteFunc(Red(r), func(id string) bool { return len(ids) > 2 && slices.Contains(mayBe, id) })
	if !slices.Equal(got, ids) {
		t.Errorf("red are %q, want %q", got, ids)
	}
	for _, f := range r.Cases {
		switch f.Verdict {
		case attack.Breach:
			t.Logf("%s: %s", f.ID, f.Reason)
		case attack.Unclear:
			t.Errorf("%s is unclear: %s", f.ID, f.Reason)
		}
	}
}

// Network are the cases that need a sandbox with a network.
func Network() []string {
	return []string{"S05", "S06", "N02", "N05", "N06", "N07", "N08", "N09", "N10", "N11", "N12", "N13", "N14", "N16", "N17", "N18", "N19"}
}

// OneSandbox are the cases that share one, and so are cheap together.
func OneSandbox() (ids []string) {
	for _, c := range attack.Cases() {
		if !slices.Contains(slices.Concat([]string{"F07", "F10", "F11", "F20", "F23", "F24", "K18", "N15"}, Network()), c.ID) && c.ID[0] != 'P' && (c.ID[0] != 'L' || c.ID == "L07") {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// program is this binary, where the user who runs it may open it by its name.
func program(t *testing.T) string {
	t.Helper()
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
