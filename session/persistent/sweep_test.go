// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/registry"
)

// What was still held when the sandboxes were opened, by an owner that ends
// without taking it away, is taken away later.
func testSweepsAgain(t *testing.T, h *home) {
	dying, err := h.dir.Run("sbx_ofadeadowner0000000000")
	if err != nil {
		t.Fatal(err)
	}
	here := func() bool {
		_, err := os.Stat(filepath.Join(h.dir.Path(), "run", "sbx_ofadeadowner0000000000"))
		return err == nil
	}
	h.clock.move(sweepSoon)
	if !here() {
		t.Fatal("what is held was taken away")
	}
	dying.Release()
	h.clock.move(2*sweepSoon - time.Nanosecond)
	if !here() {
		t.Fatal("it was not waited twice as long")
	}
	// A process that another test is just starting has a copy of all locks until it
	// executes its program, so one look may not be enough.
	for range 100 {
		if h.clock.move(sweepEvery); !here() {
			return
		}
	}
	t.Error("it is still there when nobody holds it any more")
}

// lastSight is a level that looks for a file when it sweeps.
type lastSight struct {
	sandbox.Driver
	file  string
	swept bool
	there bool
}

func (l *lastSight) Sweep(context.Context, string, string) error {
	_, err := os.Stat(l.file)
	l.swept, l.there = true, err == nil
	return nil
}

// What may still run of a dead owner's sandbox is ended before the placeholders are
// taken away that keep it from making what later runs on the host.
func TestPlaceholdersGoLast(t *testing.T) {
	dir, err := store.Open(store.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	state := session.DirState(dir)
	dead, err := dir.Run("sbx_ofadeadowner0000000000")
	if err != nil {
		t.Fatal(err)
	}
	dead.Release()
	journal := filepath.Join(environment.PlaceholdersIn(state.Path()), "1-1.journal")
	l := &lastSight{file: journal}
	for range 100 { // see testSweepsAgain
		err := errors.Join(os.MkdirAll(filepath.Dir(journal), 0o700), os.WriteFile(journal, []byte("{}\n"), 0o600))
		if err = errors.Join(err, session.Sweep(t.Context(), state, map[string]sandbox.Driver{"a level": l})); err != nil {
			t.Fatal(err)
		}
		if l.swept {
			break
		}
	}
	if _, err := os.Stat(journal); !l.there || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("swept: %t, with what is written down of placeholders: %t; that is there: %v", l.swept, l.there, err)
	}
}

// A snapshot without an owner that cannot be removed, since something of a killed
// owner's still writes it, does not keep the next one from taking the sandboxes over. It
// goes later.
func TestSnapshotStillWritten(t *testing.T) {
	h := newHome(t, nil)
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(h.dir.Path(), keptDir, "mofadeadowner")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	written, notices := true, 0
	h.open(t, func(o *SandboxesOptions) {
		o.removeAll = func(path string) error {
			if written {
				return &os.PathError{Op: "unlinkat", Path: path, Err: syscall.ENOTEMPTY}
			}
			return os.RemoveAll(path)
		}
		o.Notice = func(string) { notices++ }
	})
	if notices != 1 {
		t.Errorf("it was told of %d times", notices)
	}
	written = false
	h.clock.move(sweepSoon)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// finds is a level that notes each search for a sandbox to take over.
type finds struct {
	*faketest.Driver
	asked atomic.Bool
}

func (f *finds) Adopt(ctx context.Context, spec *sandbox.Spec) (*sandbox.Adopted, error) {
	f.asked.Store(true)
	return f.Driver.Adopt(ctx, spec)
}

// What the last owner left is read whole before any of it is taken over, and what
// cannot be taken over ends. Both use the same list.
func TestReadBeforeTakenOver(t *testing.T) {
	h := newHome(t, nil)
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		rec := &registry.Sandbox{ID: registry.NewID("i", 20), Owner: h.key.ID, Actor: h.key.Actor(), State: registry.Running, Isolation: "gvisor", Created: h.clock.Now(),
			Life: &registry.Life{Run: fmt.Sprintf("sbx_ofadeadowner%010d", i)}}
		if err := h.reg.Put(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(h.dir.Path(), keptDir, "mofnobody"), 0o700); err != nil {
		t.Fatal(err)
	}
	level, reading := &finds{Driver: &faketest.Driver{Agent: true}}, 0
	h.open(t, func(o *SandboxesOptions) {
		o.Drivers = map[string]sandbox.Driver{"gvisor": level}
		o.removeAll = func(path string) error {
			for range 100_000 { // who has begun by now comes so far meanwhile
				runtime.Gosched()
			}
			if reading++; level.asked.Load() {
				t.Error("sandboxes are taken over while it is read what there is")
			}
			return os.RemoveAll(path)
		}
	})
	h.background.work.Wait()
	left := len(h.inventory.list())
	if left != 0 || reading != 1 || !level.asked.Load() {
		t.Errorf("%d of 20 that are gone are still known; read %d times, looked for: %t", left, reading, level.asked.Load())
	}
}
