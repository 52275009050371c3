// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"os"
	"syscall"
)

// User is who a context belongs to, and how the agent starts programs for them.
type User interface {
	// ID is the numeric user: one does not see the contexts of another.
	ID() uint32
	// Home is where a context is whose maker names no directory.
	Home() string
	// Environ is a program's environment: the sandbox's, and own on top.
	Environ(own map[string]string) []string
	// As calls f with the rights of the user on files.
	As(f func() error) error
	// Start starts a program as the user. It closes none of p's files.
	Start(p Program) (Process, error)
}

// Program is a kernel that is to be started.
type Program struct {
	Argv           []string
	Env            []string
	Dir            string
	Stdin          *os.File   // its fd 0
	Stdout, Stderr *os.File   // its fd 1 and 2
	Files          []*os.File // its fd 3 and on
}

// Process is a kernel that was started.
type Process interface {
	// Interrupt sends SIGINT to its process group.
	Interrupt() error
	// Kill kills it and what it has started.
	Kill() error
	// Done is closed when it has ended. Status says how then.
	Done() <-chan struct{}
	Status() syscall.WaitStatus
	// OutOfMemory says, after its end, whether a memory limit killed it, as far as the
	// agent can know.
	OutOfMemory() bool
}
