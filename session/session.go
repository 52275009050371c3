// SPDX-License-Identifier: Apache-2.0

// Package session is the pipeline: the one way from a request to code that runs
// in a sandbox, and back.
//
// Every frontend (command line, HTTP, MCP) builds a [Call] and hands it to
// [Session.Do], which
//
//	decides it (package policy), and refuses what may not be, or cannot be
//	enforced on the level it would run on;
//	opens every host object it names, once, and builds the environment of it;
//	writes down that it is about to run (package audit), and only then runs it;
//	holds the limits that are the same on every level: wall time, CPU time of
//	all processes, output, watch rules;
//	collects files, writes down what came of it, and takes everything away.
//
// What is written here is written once for all levels; drivers do not know
// policies, records or callers.
package session

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/registry"
)

// Options are the parts of a Session.
type Options struct {
	// Drivers are the levels by name.
	Drivers map[string]sandbox.Driver
	// Policy decides. Required. PolicyName is its file, for the record.
	Policy     *policy.Policy
	PolicyName string
	// Read are files that were read besides Policy's, and that no code may change: other
	// policies, for one.
	Read []sandbox.HostFile
	// Journal takes the records. Required: nothing runs unrecorded.
	Journal audit.Journal
	// State makes run directories. Required.
	State State
	// Rates counts how often tools are called; nil refuses calls of tools that have
	// a rate. Boot is the time that it goes by, the host's since its boot when nil.
	Rates Rates
	Boot  func() registry.Instant
	// Approvals is where people are asked what the policy asks about; nil refuses
	// such calls.
	Approvals *question.Approvals
	// Outlive has persistent sandboxes made so that they can outlive this
	// process, where the level can.
	Outlive bool
	// Swept says that the caller has taken away what dead owners left; else the first call
	// does.
	Swept bool
	// EndLimit is how long a level may take to end what it was told to end, before its
	// caller gets an error; 40 seconds when 0.
	EndLimit time.Duration
	// Now is the clock of records; time.Now when nil.
	Now func() time.Time
}

// Session carries calls out. It may be used from many goroutines.
type Session struct {
	o Options

	mu    sync.Mutex
	swept bool
	pools []*Pool // replaced, not changed

	changes *changes.Store // nil until it is wanted
}

// New checks o and makes a Session.
func New(o Options) (*Session, error) {
	switch {
	case len(o.Drivers) == 0:
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "session", "it has no level of isolation")
	case o.Policy == nil || o.Journal == nil || o.State == nil:
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "session", "it needs a policy, a journal and a state directory")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.EndLimit = cmp.Or(o.EndLimit, DefaultEndLimit)
	return &Session{o: o, swept: o.Swept}, nil
}

// driver finds a level by name.
func (s *Session) driver(name string) (sandbox.Driver, error) {
	if d := findDriver(s.o.Drivers, name); d != nil {
		return d, nil
	}
	names := slices.Sorted(maps.Keys(s.o.Drivers))
	return nil, &sandbox.Error{Op: "isolation " + name, Kind: sandbox.ErrUnsupported, Problem: "this build has no such level",
		Hint: "it has " + strings.Join(names, ", ")}
}

// findDriver is a level, or a variant of one; nil when there is none.
func findDriver(drivers map[string]sandbox.Driver, name string) sandbox.Driver {
	if d, ok := drivers[name]; ok {
		return d
	}
	level, variant, _ := strings.Cut(name, ":")
	if d, ok := drivers[level].(sandbox.Varied); ok {
		return d.Variant(variant)
	}
	return nil
}

// Do carries call out. What ran is a Result, however it ended, and so is what
// the policy refused (Status denied). An error is what caisson could not do,
// always a *sandbox.Error in its chain; nothing is left behind either way. There
// are both where a program ran and not all of its output could be written to the
// caller's file, or not all be taken away that was made for it.
//
// When ctx ends, everything inside is killed and the Result says so.
func (s *Session) Do(ctx context.Context, call *Call, io IO) (*sandbox.Result, error) {
	return (&Invocation{Session: s, Call: call, IO: io, ID: NewID()}).Whole(ctx)
}

// Whole is do, and takes away what it has left.
func (r *Invocation) Whole(ctx context.Context) (res *sandbox.Result, err error) {
	defer r.Drain(ctx, &err)
	defer r.Undo.Run(ctx) // for a panic; what was undone is not undone twice
	res, err = r.do(ctx)
	if uerr := errors.Join(r.left, r.Undo.Run(ctx)); uerr != nil && err == nil {
		// The program ran and its result stands; that something was left behind
		// is a fault all the same, and is said only here.
		err = &sandbox.Error{Op: "clean up " + r.ID, Kind: sandbox.ErrUnavailable, Problem: "something was left behind",
			Hint: "run caisson doctor; the next start sweeps it", Cause: uerr}
	}
	return res, err
}

// Images is the directory of the container images that the session's runs use.
func (s *Session) Images() string { return filepath.Join(s.o.State.Path(), "images") }

// Policy decides the session's calls.
func (s *Session) Policy() *policy.Policy { return s.o.Policy }

// PolicyName is the policy's file, for the record.
func (s *Session) PolicyName() string { return s.o.PolicyName }

// Journal takes the session's records; see package operation.
func (s *Session) Journal() audit.Journal { return s.o.Journal }
