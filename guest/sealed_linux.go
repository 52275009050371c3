// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// sharedFile is a program as one sealed file for all who open it: it is written once
// for a process, and not for each sandbox, which took 7 MB of memory and 5 ms of
// processor time. It cannot be changed, and each sandbox has an open file of its
// own.
type sharedFile struct {
	mu   sync.Mutex
	file *os.File // stays open
}

// open gives it to one more; write writes it for the first one.
func (s *sharedFile) open(write func(io.Writer) error) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		if f, err := reopen(s.file); err == nil {
			return f, nil
		}
		s.file.Close() // a process of our uid took its mode away: it gets no more than this one
		s.file = nil
	}
	f, err := sealed(write)
	if err != nil {
		return nil, err
	}
	s.file = f
	return reopen(f)
}

func reopen(f *os.File) (*os.File, error) {
	defer runtime.KeepAlive(f)
	return os.Open("/proc/self/fd/" + strconv.FormatUint(uint64(f.Fd()), 10))
}

// sealed returns the program that write writes as an open file without a name that
// cannot be changed, open for reading only: gVisor takes no other as a first process.
func sealed(write func(io.Writer) error) (*os.File, error) {
	fd, err := unix.MemfdCreate(AgentArgv0, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("guest agent: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), AgentArgv0)
	defer f.Close()
	if err := write(f); err != nil {
		return nil, err
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("guest agent: sealing: %w", err)
	}
	return reopen(f)
}
