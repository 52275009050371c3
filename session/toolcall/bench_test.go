// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"context"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/question"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub is a level on which every program succeeds at once.
type stub struct{ sandbox.Driver }

func (stub) Name() string { return "gvisor" }

func (stub) Probe(context.Context) (sandbox.Capabilities, error) {
	c := sandbox.Capabilities{Limits: map[sandbox.LimitName]sandbox.Clause{}, Masks: true}
	for _, n := range sandbox.LimitNames() {
		c.Limits[n] = sandbox.Clause{Enforcement: sandbox.Enforced}
	}
	return c, nil
}

func (stub) Start(context.Context, *sandbox.Spec) (sandbox.Instance, error) {
	return nil, sandbox.ErrUnsupported
}

func (stub) Run(_ context.Context, _ *sandbox.Spec, x *sandbox.Exec) (*sandbox.Result, error) {
	if x.Started != nil {
		x.Started()
	}
	code := 0
	return &sandbox.Result{Status: sandbox.StatusSuccess, ExitCode: &code}, nil
}

// bench is the tools of a session on a stub, with a real record and state directory.
type bench struct {
	*Tools
	state     *store.Dir
	approvals *question.Approvals
}

// newBench makes one under a policy; empty is the default.
func newBench(t *testing.T, text string) *bench {
	t.Helper()
	dir, err := store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(t.Context(), audit.Options{Dir: dir.Path()})
	if err != nil {
		t.Fatal(err)
	}
	approvals := question.New(question.Options{Dir: dir.Path(), Journal: log})
	t.Cleanup(func() { approvals.Close(); log.Close(); dir.Close() })
	var o policy.Options
	if text != "" {
		if o.File, err = policy.Parse("/w/p.yaml", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := policy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.New(session.Options{Drivers: map[string]sandbox.Driver{"gvisor": stub{}}, Policy: p, Journal: log, State: session.DirState(dir), Approvals: approvals})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{Of(s), dir, approvals}
}
