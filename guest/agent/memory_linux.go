// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// memoryFlag makes the agent start itself again from a file in the sandbox's own
// memory.
const memoryFlag = "memory"

// intoMemory executes the agent once more, from a file without a name that it
// copies itself to. A kernel that is to be written down with all that runs in it
// cannot write down a program that was handed over from outside.
func intoMemory(args []string) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("copy the agent into memory: %w", err)
	}
	defer self.Close()
	fd, err := unix.MemfdCreate("caisson-guest", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("copy the agent into memory: %w", err)
	}
	copied := os.NewFile(uintptr(fd), "agent")
	defer copied.Close()
	if err := copyFile(copied, self); err != nil {
		return fmt.Errorf("copy the agent into memory: %w", err)
	}
	again := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-"+memoryFlag })
	err = unix.Exec("/proc/self/fd/"+strconv.Itoa(fd), append([]string{os.Args[0]}, again...), os.Environ())
	return fmt.Errorf("start the agent from memory: %w", err)
}

// copyFile copies from to to inside the kernel: of what it takes to make a sandbox
// ready, 400 system calls and the pages of a buffer are too much.
func copyFile(to, from *os.File) error {
	i, err := from.Stat()
	if err != nil {
		return err
	}
	for left := i.Size(); left > 0; {
		n, err := unix.Sendfile(int(to.Fd()), int(from.Fd()), nil, int(left))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		left -= int64(n)
	}
	return nil
}
