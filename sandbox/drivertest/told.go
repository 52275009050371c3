// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// told are the layers of a run, and why one could not be read.
type told struct {
	mu     sync.Mutex
	layers map[string]map[string]change
	errs   map[string]error
}

func (l *told) take(target string, layer map[string]change, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.layers[target]; ok {
		err = errors.Join(err, errors.New("it was told twice"))
	}
	l.layers[target] = layer
	if err != nil {
		l.errs[target] = err
	}
	return err
}

// whole demands that the layers of these mounts, and of no other, were read.
func (l *told) whole(t *testing.T, targets ...string) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(l.layers)); !slices.Equal(got, targets) || len(l.errs) > 0 {
		t.Fatalf("the layers of %q were told (%v), want those of %q", got, l.errs, targets)
	}
}

// changing runs x in w until ctx ends, and reads what was changed then.
func (s *suite) changing(t *testing.T, ctx context.Context, r road, w *fixture, x *sandbox.Exec) (outcome, *told) {
	t.Helper()
	l := &told{layers: map[string]map[string]change{}, errs: map[string]error{}}
	w.spec.OnChanges = func(target string, layer io.Reader) error {
		got, err := readLayer(layer)
		return l.take(target, got, err)
	}
	if r.name == living {
		r.run = func(ctx context.Context, spec *sandbox.Spec, exec *sandbox.Exec) (*sandbox.Result, error) {
			return s.changeLiving(t, ctx, spec, exec, l)
		}
	}
	return w.start(t, ctx, r, x), l
}

// changeLiving is runLiving, and reads the layers when the program has ended.
func (s *suite) changeLiving(t *testing.T, ctx context.Context, spec *sandbox.Spec, exec *sandbox.Exec, l *told) (*sandbox.Result, error) {
	d := &watched{Driver: s.driver, before: func(inst sandbox.Instance) {
		for _, m := range spec.Mounts {
			if m.Access != sandbox.CopyOnWrite {
				continue
			}
			got, err := readChanges(t, inst, m.Target)
			switch {
			case !m.Dir:
				if !errors.Is(err, sandbox.ErrInvalid) {
					t.Errorf("the changes of a mounted file: %v", err)
				}
			case got == nil && err != nil:
				if !errors.Is(err, sandbox.ErrUnavailable) {
					t.Errorf("changes that cannot be read: %v", err)
				}
			default:
				l.take(m.Target, got, err)
			}
		}
	}}
	return runLiving(ctx, d, spec, exec)
}

// readChanges reads a layer of a living sandbox; nil when nothing came.
func readChanges(t *testing.T, inst sandbox.Instance, target string) (layer map[string]change, err error) {
	reader, ok := inst.(sandbox.ChangeReader)
	if !ok {
		t.Fatal("its instances do not tell changes")
	}
	from, to := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := reader.ReadChanges(timeout(t), target, to)
		to.CloseWithError(err)
		done <- err
	}()
	layer, err = readLayer(from)
	_, _ = io.Copy(io.Discard, from)
	if why := <-done; why != nil {
		return nil, why
	}
	return layer, err
}

// watched is a level that has a look at its instances before they are destroyed.
type watched struct {
	sandbox.Driver
	before func(sandbox.Instance)
}

func (w *watched) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	inst, err := w.Driver.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &watchedInstance{inst, w.before}, nil
}

type watchedInstance struct {
	sandbox.Instance
	before func(sandbox.Instance)
}

func (i *watchedInstance) Destroy(ctx context.Context) error {
	i.before(i.Instance)
	return i.Instance.Destroy(ctx)
}
