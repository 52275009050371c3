// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"

	"github.com/caisson-run/caisson/sandbox/gvisor/sentry"
)

// What is written to a scratch directory lies in a file on the owner's disk. With a
// gofer gVisor makes these files itself, each in a directory of its own, in the gofer's
// view of the host; without one it forgets them. On a disk that others use, each
// directory and each name that is made there and removed again takes its time. So where
// the order says that they are this process's, the files are made here, without a name,
// and passed on in the order of the mounts (see [sentry.ScratchFD]); gVisor finds
// directories on the stage for its own, in which nothing is ever written.

// findScratch counts the files that are to be made here, and puts the directories on
// the stage where the order says so.
func (w *instance) findScratch() error {
	hints := map[string]string{} // a directory, and the annotation that says what it is
	for key, value := range w.spec.Annotations {
		if strings.HasPrefix(key, scratchAnnotation) && strings.HasSuffix(key, ".source") {
			hints[value] = key
		}
	}
	if w.order.StageScratch || len(w.handed) == 0 {
		w.behind = len(hints)
	}
	if !w.order.StageScratch {
		// Over one that is missing gVisor panics, when it undoes what it has made so far.
		for dir := range hints {
			if _, err := os.Stat(dir); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range w.spec.Mounts {
		m := &w.spec.Mounts[i]
		key := hints[m.Source]
		if key == "" {
			continue
		}
		name := filepath.Join(ownDir, filepath.Base(m.Source))
		if err := os.Mkdir(name, 0o700); err != nil {
			return err
		}
		m.Source, w.spec.Annotations[key] = name, name
	}
	return nil
}

// scratchAnnotation begins the annotations that tell gVisor of scratch directories.
const scratchAnnotation = "dev.gvisor.spec.mount.scratch"

// backScratch makes the files that are this process's to make.
func (w *instance) backScratch() (map[int]*os.File, error) {
	files := map[int]*os.File{}
	for n := range w.behind {
		f, err := nameless(w.order.StateDir)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files[sentry.ScratchFD+n] = f
		pgalloc.IMAWorkAroundForMemFile(f.Fd()) // as gVisor does, while no filter forbids it
	}
	return files, nil
}

// nameless makes a file without a name, which it cannot get later, in a directory that
// is this user's alone.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "scratch"), nil
	}
	// Not every file system can (EOPNOTSUPP, and what was before it: EISDIR, ENOENT).
	f, err := os.CreateTemp(dir, "scratch-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("its name: %w", err)
	}
	return f, nil
}

func closeAll(files map[int]*os.File) {
	for _, f := range files {
		f.Close()
	}
}
