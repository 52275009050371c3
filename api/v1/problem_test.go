// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"errors"
	"fmt"
	"testing"

	v1 "github.com/caisson-run/caisson/api/v1"
	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

// Each kind of error has its status; what is none for people is not shown, nor
// what caused one.
func TestFault(t *testing.T) {
	host := errors.New("open /var/lib/caisson/secret: no")
	for name, c := range map[string]struct {
		err    error
		status int
		kind   string
		detail string
	}{
		"a refusal":   {&sandbox.Error{Op: "exec", Kind: sandbox.ErrDenied, Problem: "no", Rule: "p.yaml:1", Cause: host}, 403, "denied", "exec: no"},
		"wrapped":     {fmt.Errorf("x: %w", &sandbox.Error{Kind: sandbox.ErrExhausted, Problem: "full"}), 429, "exhausted", "full"},
		"joined":      {errors.Join(host, &sandbox.Error{Kind: sandbox.ErrConflict, Problem: "paused"}), 409, "conflict", "paused"},
		"unavailable": {&sandbox.Error{Kind: sandbox.ErrUnavailable, Problem: "disk", Cause: host}, 503, "unavailable", "disk"},
		"our own":     {host, 500, "", "internal error"},
		"waits":       {&question.Pending{Request: &approval.Request{ID: "a1"}, Token: "t"}, 403, "denied", "policy: it waits for approval: a1"},
	} {
		var p *v1.Problem
		if !errors.As(v1.Fault(c.err), &p) || p.Status != c.status || p.Kind != c.kind || p.Detail != c.detail || p.Title == "" {
			t.Errorf("%s: %+v", name, p)
		}
		if waits := name == "waits"; waits != (p.Approval != nil) || waits && (p.Approval.ID != "a1" || p.Approval.Token != "t") {
			t.Errorf("%s: %+v", name, p.Approval)
		}
	}
}
