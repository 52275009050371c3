// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
)

func TestResume(t *testing.T) {
	c, ctx := newClient(t), t.Context()
	if env, err := c.Env(ctx); err != nil || len(env) != 0 {
		t.Errorf("at first its variables are %v, %v", env, err)
	}
	dir := "/tmp"
	env := map[string]string{"A": "b", "TOKEN": "c"}
	failed, err := c.Resume(ctx, guest.Resume{Hostname: "clone-7", Env: env, Dir: &dir})
	if err != nil || len(failed) != 0 {
		t.Fatalf("%v, %v", failed, err)
	}
	if got, err := c.Env(ctx); err != nil || !maps.Equal(got, env) {
		t.Errorf("its variables are %v, %v", got, err)
	}
	p := start(t, c, bash("uname -n; pwd; echo $A"))
	if got := hear(t, p, ""); got != "clone-7\n/tmp\nb\n" {
		t.Errorf("inside it is %q", got)
	}
	// What is not said stays.
	if _, err := c.Resume(ctx, guest.Resume{}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Env(ctx); err != nil || !maps.Equal(got, env) {
		t.Errorf("then its variables are %v, %v", got, err)
	}
	for _, bad := range []guest.Resume{{Hostname: strings.Repeat("x", 65)}, {Env: map[string]string{"A=B": "c"}}, {Env: map[string]string{"A": "\x00"}}} {
		if _, err := c.Resume(ctx, bad); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestMetrics(t *testing.T) {
	c, ctx := newClient(t), t.Context()
	if _, err := c.Metrics(ctx); err != nil {
		t.Fatal(err)
	}
	output(t, c, "for i in {1..20000}; do :; done")
	m, err := c.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if m.CPUs == 0 || m.CPUPercent <= 0 || m.MemTotal == 0 || m.MemUsed == 0 || m.MemUsed > m.MemTotal || m.DiskTotal == 0 || m.DiskUsed > m.DiskTotal {
		t.Errorf("they are %+v", m)
	}
	if d := time.Since(m.Time); d < -time.Minute || d > time.Minute {
		t.Errorf("they are of %v", m.Time)
	}
}
