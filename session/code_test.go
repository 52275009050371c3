// SPDX-License-Identifier: Apache-2.0

package session

import (
	"testing"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Texts are read in sandboxes made ahead where calls of the kind have a pool.
func TestCodeReadersAhead(t *testing.T) {
	f, err := policy.Parse("/w/p.yaml", []byte("version: 1\ncode: {python: {deny_imports: [socket], on_finding: warn}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.New(policy.Options{File: f})
	if err != nil {
		t.Fatal(err)
	}
	d := &preparer{made: map[string]*preparedStub{}, begun: make(chan struct{}, 100)}
	b := newBench(t, &d.stub, func(o *Options) { o.Drivers["gvisor"], o.Policy = d, rules })
	p, err := b.Keep(t.Context(), PoolOptions{Like: *like(func(c *Call) { c.Argv, c.Source = nil, &Source{Language: "python"} }), Ready: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		b.clean(t)
	}()
	waiting(t, p, 1)
	res, err := b.Do(t.Context(), like(func(c *Call) { c.Argv, c.Source = nil, &Source{Language: "python", Code: []byte("print(1)")} }), IO{})
	if err != nil || res.Status != sandbox.StatusSuccess || d.stub.ran != 0 {
		t.Fatalf("%+v, %v, %d in sandboxes of their own", res, err, d.stub.ran)
	}
	if s := p.reads.State(); s.Taken != 1 || s.Missed != 0 {
		t.Errorf("readers: %+v", s)
	}
	if len(res.Findings) != 1 || res.Findings[0].Kind != "unread" { // the stub prints nothing
		t.Errorf("%+v", res.Findings)
	}
}
