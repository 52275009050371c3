// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"os"
	"path"
	"time"

	"github.com/caisson-run/caisson/internal/hostpath"
)

// Kept are names of read-write mounts that are mounted over themselves. The mount
// lies on the file that has the name, not on the name: when a program on the host
// puts another in its place (git config and most editors write a new file and
// rename it), the kernel takes the mount away in every namespace, and the new
// file is the sandbox's to write. Nothing can keep the host from that. So it is
// looked for, ends the program, and is told.
type Kept []kept

type kept struct {
	parent *os.File // of the name; it may be moved about
	base   string
	file   *os.File
	name   string // on the host, for people
}

// keepName notes what was opened as rel below a source.
func (e *Environment) keepName(src *hostpath.Source, rel, name string, file *os.File) error {
	parent, err := openBelow(src.File, path.Dir(rel))
	if err != nil {
		return err
	}
	e.o.Host.Undo.Close(parent)
	e.Kept = append(e.Kept, kept{parent: parent, base: path.Base(rel), file: file, name: name})
	return nil
}

// replaced reports whether the name is another file's, or no file's.
func (k kept) replaced() bool {
	then, err := k.file.Stat()
	if err != nil {
		return true
	}
	f, err := openBelow(k.parent, k.base)
	if err != nil {
		return true
	}
	defer f.Close()
	now, err := f.Stat()
	return err != nil || !os.SameFile(then, now)
}

// Lost is a name that is another file's now, or no file's; empty while all are
// kept.
func (k Kept) Lost() (name string) {
	for _, one := range k {
		if one.replaced() {
			return one.name
		}
	}
	return ""
}

// keptEvery is how often names are looked at. A program that waits for it is
// faster; that is why the caller looks at the end, too.
const keptEvery = 100 * time.Millisecond

// Watch calls lost once with the first name that is lost. The caller calls stop.
func (k Kept) Watch(lost func(name string)) (stop func()) {
	if len(k) == 0 {
		return func() {}
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(keptEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if name := k.Lost(); name != "" {
					lost(name)
					return
				}
			}
		}
	}()
	return func() { close(over); <-done }
}
