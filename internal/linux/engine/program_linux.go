// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Program is a program that this binary carries. Its methods may be called from
// many goroutines.
type Program struct {
	Label  Label
	Packed []byte // zstd

	mu     sync.Mutex
	memory *os.File // the program without a name, once it was needed
}

// Open returns the program, open for reading, to be executed through
// /proc/self/fd. The caller closes it. stateDir is the directory of one sandbox;
// the program is kept beside it, for all sandboxes of that owner. Where nothing
// can be kept or executed (there is no such directory, or it is not private, the
// disk is full, the mount has noexec) it is a file in memory, which each process
// unpacks anew.
//
// What is found on disk is taken for the program by its name, which has the
// digest, and because this user and root alone can have put it there: owner,
// mode and size are looked at on the open file. It was synced before it got that
// name, so half a file never has it.
func (p *Program) Open(stateDir string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory == nil {
		if f, err := p.openKept(stateDir); err == nil {
			return f, nil
		}
		var err error
		if p.memory, err = p.inMemory(); err != nil {
			return nil, err
		}
	}
	return os.Open("/proc/self/fd/" + strconv.Itoa(int(p.memory.Fd())))
}

// openKept opens the program beside stateDir, and puts it there first when it is not.
func (p *Program) openKept(stateDir string) (*os.File, error) {
	if !filepath.IsAbs(stateDir) {
		return nil, errors.New("engine: there is no state directory")
	}
	d, err := openDirectory(filepath.Dir(stateDir))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	f, err := d.find(p.Label)
	if !errors.Is(err, unix.ENOENT) {
		return f, err
	}
	if err := d.put(p.Label, p.unpack); err != nil {
		return nil, err
	}
	return d.find(p.Label)
}

// inMemory unpacks the program into a file without a name that cannot be
// changed.
func (p *Program) inMemory() (*os.File, error) {
	const name = "caisson-engine"
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 all of them were executable
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("engine: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := p.unpack(f); err != nil {
		f.Close()
		return nil, err
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("engine: sealing: %w", err)
	}
	return f, nil
}
