// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox/gvisor/sentry"
)

// openHits makes the file in which the kernel notes limits (sentry.HitsFD), and adds it to
// what is passed to it. It is read and never mapped here: the kernel inside may be the
// sandbox's. Its length never changes.
func (w *instance) openHits(passed map[int]*os.File) error {
	fd, err := unix.MemfdCreate("limits", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	w.hits = os.NewFile(uintptr(fd), "limits")
	if err := w.hits.Truncate(sentry.HitsSize); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return err
	}
	passed[sentry.HitsFD] = w.hits
	return nil
}

// hitLimits says when a call inside last failed for a limit, by its name.
func (w *instance) hitLimits() map[string]time.Time {
	b := make([]byte, sentry.HitsSize)
	n, err := w.hits.ReadAt(b, 0)
	if err != nil {
		return nil
	}
	hits := sentry.ReadHits(b[:n])
	if w.group != nil && w.group.PidsMaxHit() {
		hits["processes"] = time.Now()
	}
	return hits
}
