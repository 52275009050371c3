// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/caisson-run/caisson/guest/wire"
)

// openTerminal opens a PTY that belongs to the user.
func openTerminal(size wire.Size, uid, gid int) (master *os.File, slave int, err error) {
	master, slave, err = newTerminal(size)
	if err != nil || os.Geteuid() != 0 {
		return master, slave, err
	}
	switch err := syscall.Fchown(slave, uid, gid); err {
	case nil:
		return master, slave, nil
	case syscall.EPERM:
		// Its group means nothing in our user namespace, so we may not give it
		// away; but the opener of a terminal owns it.
		master.Close()
		syscall.Close(slave)
		err = user{uid: uint32(uid), gid: uint32(gid)}.as(func() (err error) {
			master, slave, err = newTerminal(size)
			return err
		})
		return master, slave, err
	default:
		master.Close()
		syscall.Close(slave)
		return nil, -1, fmt.Errorf("hand over the terminal: %w", err)
	}
}

// newTerminal opens a PTY.
func newTerminal(size wire.Size) (master *os.File, slave int, err error) {
	const flags = syscall.O_RDWR | syscall.O_NOCTTY | syscall.O_CLOEXEC
	fd, err := syscall.Open("/dev/ptmx", flags|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	var unlock, number int32
	if err := ioctl(master, syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)); err != nil {
		return nil, -1, fmt.Errorf("unlock the terminal: %w", err)
	}
	if err := ioctl(master, syscall.TIOCGPTN, unsafe.Pointer(&number)); err != nil {
		return nil, -1, fmt.Errorf("number of the terminal: %w", err)
	}
	if err := resize(master, size); err != nil {
		return nil, -1, err
	}
	name := "/dev/pts/" + strconv.Itoa(int(number))
	slave, err = syscall.Open(name, flags, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("open %s: %w", name, err)
	}
	return master, slave, nil
}

// resize sets a terminal's size; the kernel tells the foreground job.
func resize(master *os.File, size wire.Size) error {
	w := [4]uint16{size.Rows, size.Cols}
	if err := ioctl(master, syscall.TIOCSWINSZ, unsafe.Pointer(&w)); err != nil {
		return fmt.Errorf("size of the terminal: %w", err)
	}
	return nil
}

// foreground is the process group in the terminal's foreground.
func foreground(master *os.File) (int, error) {
	var pgid int32
	err := ioctl(master, syscall.TIOCGPGRP, unsafe.Pointer(&pgid))
	return int(pgid), err
}

// terminalBuffers is what the kernel keeps of a terminal's output: 4 KiB to be
// read and 8 KiB on the way there (N_TTY_BUF_SIZE, pty_common_install).
const terminalBuffers = 12 << 10

// pending is how many bytes can be read from f without waiting.
//
// What a program has written to a terminal is handed on by a worker of the
// kernel's, and not counted before that; poll(2) waits for it
// when there is nothing else to read (drivers/tty/n_tty.c, n_tty_poll).
func pending(f *os.File) int {
	flush(f)
	var n int32
	if err := ioctl(f, syscall.TIOCINQ, unsafe.Pointer(&n)); err != nil {
		return 0
	}
	return int(n)
}

// flush polls f without waiting.
func flush(f *os.File) {
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Control(func(fd uintptr) {
		const in = 1 // POLLIN
		p := struct {
			fd              int32
			events, revents int16
		}{fd: int32(fd), events: in}
		var now syscall.Timespec
		syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	})
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	err = c.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg))
	})
	if err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}
