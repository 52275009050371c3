// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
)

// breaking is a level that can be broken, and counts what it is to make.
type breaking struct {
	*faketest.Driver
	broken atomic.Bool
	begun  atomic.Int32
}

func (b *breaking) Start(ctx context.Context, s *sandbox.Spec) (sandbox.Instance, error) {
	b.begun.Add(1)
	if b.broken.Load() {
		return nil, errors.New("clone: operation not permitted")
	}
	return b.Driver.Start(ctx, s)
}

// Readiness is what a sandbox that was really made has shown. However often it is asked, no
// more are made than one every ten seconds, and none once one could be.
func TestReadiness(t *testing.T) {
	level := &breaking{}
	h := newHome(t, func(o *SandboxesOptions) {
		level.Driver = o.Drivers["gvisor"].(*faketest.Driver)
		o.Drivers = map[string]sandbox.Driver{"gvisor": level}
	})
	tried := func() error { // waits for a try that is under way
		for end := time.After(2 * time.Minute); ; {
			err := h.Readiness()
			h.ready.mu.Lock()
			trying := h.ready.trying
			h.ready.mu.Unlock()
			if !trying {
				return err
			}
			select {
			case <-end:
				t.Fatal("a try does not end")
			case <-time.After(time.Millisecond):
			}
		}
	}
	level.broken.Store(true)
	if h.Readiness() == nil {
		t.Error("ready before a sandbox was made")
	}
	tried()
	if err := tried(); err == nil || !strings.Contains(err.Error(), "not permitted") || level.begun.Load() != 1 {
		t.Errorf("%v after %d tries", err, level.begun.Load())
	}
	level.broken.Store(false)
	for range 100 {
		h.Readiness()
	}
	if n := level.begun.Load(); n != 1 {
		t.Errorf("%d were made at once", n)
	}
	h.clock.move(tryAgain)
	tried()
	if err := tried(); err != nil || level.begun.Load() != 2 || level.Running() != 0 {
		t.Errorf("%v after %d tries, %d left", err, level.begun.Load(), level.Running())
	}
	// It stays so until the host keeps one from being made, and another shows that it does.
	level.broken.Store(true)
	h.clock.move(tryAgain)
	if err := tried(); err != nil || level.begun.Load() != 2 {
		t.Errorf("%v after %d tries", err, level.begun.Load())
	}
	if _, err := h.Create(t.Context(), h.key, Create{}); err == nil {
		t.Error("it was made")
	}
	tried()
	if err := tried(); err == nil || level.begun.Load() != 4 {
		t.Errorf("%v after %d tries", err, level.begun.Load())
	}
	level.broken.Store(false)
	h.create(t, Create{})
	if err := h.Readiness(); err != nil {
		t.Error(err)
	}
}

// Where a policy has sandboxes made of what may be another thing tomorrow, it is told once
// that none is kept ready.
func TestUnfitForWarmPool(t *testing.T) {
	var mu sync.Mutex
	var notices []string
	file, err := policy.Parse("p.yaml", []byte("version: 1\nfiles: {workspace: {source: /usr/share, mode: ro}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	h := newHome(t, func(o *SandboxesOptions) {
		o.Ready, o.Policies = 2, map[string]*policy.File{"": file}
		o.Notice = func(s string) { mu.Lock(); defer mu.Unlock(); notices = append(notices, s) }
	})
	for range 3 {
		h.create(t, Create{})
	}
	mu.Lock()
	defer mu.Unlock()
	if now := h.WarmPool(); len(notices) != 1 || !strings.Contains(notices[0], "no sandbox is kept ready") || now.Waiting != 0 || now.Err != nil {
		t.Errorf("%q, %+v", notices, now)
	}
}
