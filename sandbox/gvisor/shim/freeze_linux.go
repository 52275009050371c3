// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"fmt"
)

// freeze has the kernel inside run no program, or run them again. It does nothing where
// that is so already: the kernel counts its pauses, and a snapshot has one of its own.
func (w *instance) freeze(still bool) error {
	w.freezing.Lock()
	defer w.freezing.Unlock()
	if w.frozen == still {
		return nil
	}
	k := w.runningKernel()
	if k == nil {
		return errors.New("the sandbox does not run")
	}
	do, what := k.Resume, "to go on"
	if still {
		do, what = k.Pause, "to stand still"
	}
	if err := do(w.order.ID); err != nil {
		return fmt.Errorf("asking gVisor's kernel %s: %w", what, err)
	}
	w.frozen = still
	return nil
}
