// SPDX-License-Identifier: Apache-2.0

//go:build linux

package persistent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
)

// undying is a level that ends nothing before it is let go.
type undying struct {
	*faketest.Driver
	began chan struct{} // closed when a program has begun
	free  chan struct{}
}

func (d *undying) Run(ctx context.Context, spec *sandbox.Spec, exec *sandbox.Exec) (*sandbox.Result, error) {
	close(d.began)
	<-d.free
	return d.Driver.Run(ctx, spec, exec)
}

func (d *undying) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	i, err := d.Driver.Start(ctx, spec)
	return &undyingInstance{i, d.free}, err
}

type undyingInstance struct {
	sandbox.Instance
	free chan struct{}
}

func (i *undyingInstance) Destroy(ctx context.Context) error {
	<-i.free
	return i.Instance.Destroy(ctx)
}

// undyingHome has such a level, which is let go when the test has ended.
func undyingHome(t *testing.T) (*home, *undying) {
	d := &undying{&faketest.Driver{Agent: true}, make(chan struct{}), make(chan struct{})}
	h := newHome(t, func(o *SandboxesOptions) {
		o.Drivers = map[string]sandbox.Driver{"gvisor": d}
		o.EndLimit = 100 * time.Millisecond
	})
	t.Cleanup(func() {
		close(d.free)
		for d.Running() != 0 { // newHome looks at what is left
			time.Sleep(time.Millisecond)
		}
	})
	return h, d
}

// wantUnended holds that err is about what has not ended; about is a word in it.
func wantUnended(t *testing.T, what string, err error, about string) {
	t.Helper()
	if !errors.Is(err, sandbox.ErrUnended) || !strings.Contains(err.Error(), about) {
		t.Errorf("%s: %v", what, err)
	}
}

// A sandbox whose level does not end it keeps neither who ends it waiting, nor who stops
// caisson.
func TestSandboxThatDoesNotEnd(t *testing.T) {
	h, _ := undyingHome(t)
	s := h.create(t, Create{})
	wantUnended(t, "Kill", h.Handle(h.key, s.ID).Kill(t.Context()), "100ms")
	s = h.create(t, Create{})
	stopped, stop := context.WithCancel(t.Context())
	stop()
	wantUnended(t, "Close", h.Close(stopped), s.ID)
	h.open(t, nil) // for who closes it again
}

// Nor does a run that was cancelled.
func TestRunThatDoesNotEnd(t *testing.T) {
	h, d := undyingHome(t)
	c := &session.Call{}
	c.Argv = []string{"true"}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-d.began
		cancel()
	}()
	_, err := h.Run(ctx, h.key, "", c, session.IO{})
	wantUnended(t, "Run", err, "100ms")
}
