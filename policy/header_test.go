// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/egress/wire"
)

// Headers are in force with the network that there is, and shown without their values.
func TestHeaders(t *testing.T) {
	list := []wire.Header{{Host: "*.Example.com", Name: "x-name", Value: "SECRET"}, {Host: "hidden.example.org", Name: "X-Old"}}
	decide := func(file string, c *Call) Verdict {
		p, err := New(Options{File: parsed(t, "file", file)})
		if err != nil {
			t.Fatal(err)
		}
		return p.Decide(command(func(call *Call) { call.Headers, call.NoNetwork = c.Headers, c.NoNetwork }))
	}
	v := decide("network: {allow: [api.example.com]}", &Call{Headers: list})
	n := v.Plan.Network
	if v.Decision != Allow || n == nil || n.String() != "allow-list: api.example.com; header x-name to *.example.com" {
		t.Fatalf("%+v: %s", v, n)
	}
	if got := strings.Join(n.Ended(), " "); got != "example.com hidden.example.org" {
		t.Errorf("TLS is ended for %s", got)
	}
	if b, err := json.Marshal(v.Plan); err != nil || strings.Contains(string(b), "SECRET") {
		t.Errorf("%s, %v", b, err)
	}
	if v := decide("network: {allow: [api.example.com]}", &Call{Headers: list, NoNetwork: true}); v.Decision != Allow || v.Plan.Network != nil {
		t.Errorf("with no network asked for: %+v", v)
	}
	if v := decide("", &Call{Headers: list}); v.Decision != Deny || v.Hint == "" {
		t.Errorf("without a network: %+v", v)
	}
	for _, bad := range []wire.Header{{Host: "a.test", Name: "Host", Value: "SECRET"}, {Host: "internet", Name: "X", Value: "SECRET"}, {Host: "a.test", Name: "X", Value: "SECRET\n"}, {Host: "a.test", Name: "X", Value: wire.Value(strings.Repeat("SECRET", 2000))}} {
		v := decide("network: {allow: [internet]}", &Call{Headers: []wire.Header{bad}})
		if v.Decision != Deny || strings.Contains(v.Reason+v.Hint, "SECRET") {
			t.Errorf("%s for %s: %+v", bad.Name, bad.Host, v)
		}
	}
}
