// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox/gvisor/sentry"
)

// statusPipe is where the kernel says how its first program has ended, see
// [sentry.StatusFD].
type statusPipe struct{ read, write *os.File }

func newStatusPipe() (*statusPipe, error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	return &statusPipe{os.NewFile(uintptr(fd[0]), "status"), os.NewFile(uintptr(fd[1]), "status")}, nil
}

// passTo hands the kernel its end, with what else it gets.
func (p *statusPipe) passTo(files map[int]*os.File) map[int]*os.File {
	if files == nil {
		files = map[int]*os.File{}
	}
	files[sentry.StatusFD] = p.write
	return files
}

// passed lets go of the kernel's end, so that its death ends a wait.
func (p *statusPipe) passed() { p.write.Close() }

// wait waits until the kernel has said it, or is dead.
func (p *statusPipe) wait() {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(p.read.Fd()), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// said is what the kernel has said, if it has; a kernel that was killed has not.
func (p *statusPipe) said() (unix.WaitStatus, bool) {
	b := make([]byte, 4)
	n, err := unix.Read(int(p.read.Fd()), b)
	return unix.WaitStatus(binary.NativeEndian.Uint32(b)), err == nil && n == len(b)
}

func (p *statusPipe) close() {
	p.read.Close()
	p.write.Close()
}
