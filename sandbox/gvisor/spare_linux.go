// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/internal/linux/engine"
	"github.com/caisson-run/caisson/sandbox/gvisor/newborn"
)

// often is how many sandboxes a driver makes before it has a shim ready for the next.
// Who has asked for one may be a command that ends then; who has asked for two will ask
// again.
const often = 2

// spareIdle is for how long such a shim waits.
const spareIdle = time.Minute

// Rest ends the shim that is ready, of whatever driver of this process.
func (d *Driver) Rest() { newborn.Discard() }

// keepSpare has a shim started for the next sandbox, when one is gone and the program
// that asked for it has other things to do. There is one at a time for all of the process.
func (d *Driver) keepSpare(stateDir string) {
	if d.made.Load() < often || !stepsIn(d.host()) {
		return
	}
	program, err := engine.Open(stateDir)
	if err != nil {
		return // whoever asks next is told
	}
	defer program.Close()
	newborn.Keep(program, filepath.Dir(stateDir), spareIdle)
}
