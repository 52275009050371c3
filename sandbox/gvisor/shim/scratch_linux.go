// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/caisson-run/caisson/sandbox/gvisor/sentry"
)

// backScratch makes the files in which scratch directories keep what is
// written, where there is no gofer: gVisor makes them itself otherwise, in the
// gofer's view of the host, and without one it forgets them. They are passed
// on in the order of the mounts, see [sentry.ScratchFD].
func (w *world) backScratch() (map[int]*os.File, error) {
	files := map[int]*os.File{}
	for _, m := range w.spec.Mounts {
		if m.Type != "bind" { // all that are bound are scratch: nothing was handed over
			continue
		}
		name := filepath.Join(m.Source, boot.SelfFilestoreName(w.order.ID))
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files[sentry.ScratchFD+len(files)] = f
		pgalloc.IMAWorkAroundForMemFile(f.Fd()) // as gVisor does, while no filter forbids it
	}
	return files, nil
}

func closeAll(files map[int]*os.File) {
	for _, f := range files {
		f.Close()
	}
}
