// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"io"
	"syscall"
	"time"
)

// Exec is one program in a sandbox.
type Exec struct {
	// Argv is the program and its arguments. Argv[0] without a slash is looked
	// up in Env's PATH, inside.
	Argv []string
	// Dir is the working directory inside, absolute.
	Dir string
	// Env is the whole environment, KEY=value; nothing is inherited.
	Env []string

	// Stdin is read until EOF; nil is an empty input. When it is an *os.File
	// the driver may hand the file itself to a copying goroutine only, never
	// to the sandbox.
	Stdin io.Reader
	// Stdout and Stderr get what the program writes, as it writes it. With a
	// Terminal everything goes to Stdout. They are called from one goroutine
	// each; a Write that blocks holds the program back, one that fails kills it.
	Stdout, Stderr io.Writer

	// Terminal gives the program a PTY.
	Terminal *Terminal

	// Signals are delivered to the program's process group; nil is none.
	Signals <-chan syscall.Signal

	// Started, when set, is called once when the program has started: the wall
	// limit runs from then on, so every driver calls it. It must not block.
	Started func()

	// Sample, when set, is called about every SampleEvery with live usage
	// while the program runs. It must not block.
	Sample      func(Usage)
	SampleEvery time.Duration
}

// Terminal is a PTY's size and its changes.
type Terminal struct {
	Size   WindowSize
	Resize <-chan WindowSize // nil: never
}

// WindowSize is a terminal's size in characters.
type WindowSize struct{ Rows, Cols uint16 }
