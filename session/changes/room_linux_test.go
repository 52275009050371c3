// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// A key has a share of the store, and the operator all of it.
func TestRoomOfKeys(t *testing.T) {
	ws := newWorkspace(t, nil)
	ws.store.o.MaxBytes = 400
	keep := func(owner, letter string, n int) error {
		src := ws.src
		src.Owner = owner
		_, err := ws.store.Keep(t.Context(), src, bytes.NewReader(newTar().file("f", strings.Repeat(letter, n), 0o644).bytes()))
		return err
	}
	full := func(err error, says string) {
		t.Helper()
		if !errors.Is(err, sandbox.ErrExhausted) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want that %s", err, says)
		}
	}
	full(keep("a", "a", 101), "one key have at most 100 bytes, and 100 are left")
	if err := errors.Join(keep("a", "a", 60), keep("b", "b", 100)); err != nil {
		t.Fatal(err)
	}
	full(keep("a", "c", 41), "and 40 are left")
	full(keep("b", "c", 1), "and 0 are left")
	if err := keep("", "d", 200); err != nil {
		t.Error(err)
	}
	full(keep("c", "e", 41), "and 40 are left") // of all
}

// What is being made takes room, too, until it is whole or given up.
func TestRoomWhileSetsAreMade(t *testing.T) {
	ws := newWorkspace(t, nil)
	ws.store.o.MaxBytes = 100
	begun := newTar().file("f", strings.Repeat("x", 60), 0o644).file("g", "", 0o644).bytes()
	other := newTar().file("f", strings.Repeat("y", 60), 0o644).bytes()
	layer, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := ws.store.Keep(t.Context(), ws.src, layer)
		done <- err
	}()
	if _, err := w.Write(begun[:3*512]); err != nil { // two heads and a block: the file is kept once the second head is read
		t.Fatal(err)
	}
	if _, err := ws.store.Keep(t.Context(), ws.src, bytes.NewReader(other)); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("beside a set that is being made: %v", err)
	}
	w.CloseWithError(errors.New("given up"))
	if err := <-done; err == nil {
		t.Error("half a layer was kept")
	}
	if _, err := ws.store.Keep(t.Context(), ws.src, bytes.NewReader(other)); err != nil {
		t.Error(err)
	}
}
