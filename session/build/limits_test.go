// SPDX-License-Identifier: Apache-2.0

package build

import (
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/template"
)

// The default limits of steps count as asked for on every base: where one cannot be enforced the
// step is refused.
func TestDefaultLimitsOnEachBase(t *testing.T) {
	dir, err := store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	log, err := audit.Open(t.Context(), audit.Options{Dir: dir.Path()})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p, err := policy.New(policy.Options{Defaults: DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.New(session.Options{Drivers: map[string]sandbox.Driver{"gvisor": nil}, Policy: p, Journal: log, State: session.DirState(dir)})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []template.Base{{Kind: template.Scratch}, {Kind: template.Host}} {
		w := &work{Builder: &Builder{Session: s}, Request: &Request{Call: session.Call{}}, def: &template.Definition{}}
		w.Call.Operator = true
		if _, err := w.base(t.Context(), kind); err != nil {
			t.Fatal(err)
		}
		if l := w.limits(); !l.Explicit[sandbox.LimitCPUs] || l.CPUs != DefaultLimits().CPUs {
			t.Errorf("%+v: %+v", kind, l)
		}
	}
}
