// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
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

// hitLimits says when a call inside last failed for a limit.
func (w *instance) hitLimits() map[sandbox.LimitName]time.Time {
	b := make([]byte, sentry.HitsSize)
	n, err := w.hits.ReadAt(b, 0)
	if err != nil {
		return nil
	}
	hits := map[sandbox.LimitName]time.Time{}
	if w.group != nil && w.group.PidsMaxHit() {
		hits[sandbox.LimitProcesses] = time.Unix(0, 0) // the time is not known
	}
	for name, at := range sentry.ReadHits(b[:n]) {
		hits[sandbox.LimitName(name)] = at
	}
	return hits
}
