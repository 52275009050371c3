// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// A program that forgets Reexec would be started again as a part of its first sandbox,
// and make the next one there, in more and more processes that outlive it.
func TestOpenWithoutReexec(t *testing.T) {
	itself.Store(false)
	defer itself.Store(true)
	c, err := Open(t.Context(), Options{State: filepath.Join(t.TempDir(), "state")})
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, sandbox.ErrInvalid) || sandbox.Hint(err) == "" {
		t.Errorf("%v", err)
	}
}
