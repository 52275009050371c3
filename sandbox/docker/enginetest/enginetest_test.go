// SPDX-License-Identifier: Apache-2.0

//go:build linux

package enginetest

import (
	"errors"
	"os"
	"testing"
)

// The engine is no child of the tests: nothing but Stop would notice one that is
// still there. What Podman leaves is seen by the tests that run on it.
func TestStopLeavesNothing(t *testing.T) {
	e, err := Start(t.Context())
	if errors.Is(err, ErrNotRoot) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if list, err := processes(e.dir); err != nil || len(list) < 2 { // the keeper, too
		t.Errorf("%q name the engine's directory, %v", list, err)
	}
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
	if list, err := processes(e.dir); err != nil || len(list) != 0 {
		t.Errorf("still there: %q, %v", list, err)
	}
	if _, err := os.Stat(e.dir); !os.IsNotExist(err) {
		t.Errorf("the engine's directory: %v", err)
	}
}
