// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"io"
)

// archive writes the format of an initial RAM disk: cpio's "newc"
// (Documentation/driver-api/early-userspace/buffer-format.rst). Several archives
// behind each other are one.
type archive struct {
	w   io.Writer
	ino int
	at  int64
	err error
}

// add adds a file; a directory's mode says so and it has no content.
func (a *archive) add(name string, mode uint32, content []byte) { a.node(name, mode, 0, 0, content) }

// node adds a file of any kind, a device by its number too.
func (a *archive) node(name string, mode uint32, major, minor int, content []byte) {
	a.ino++
	a.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.ino, mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(name)+1, 0))
	a.write(append([]byte(name), 0))
	a.pad()
	a.write(content)
	a.pad()
}

// end ends the archive and says what went wrong.
func (a *archive) end() error {
	a.add("TRAILER!!!", 0, nil)
	return a.err
}

func (a *archive) write(b []byte) {
	if a.err == nil {
		var n int
		n, a.err = a.w.Write(b)
		a.at += int64(n)
	}
}

func (a *archive) pad() { a.write(make([]byte, -a.at&3)) }
