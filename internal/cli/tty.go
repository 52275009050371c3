// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// tty is this process's terminal while it belongs to the program inside.
type tty struct {
	once sync.Once
	undo []func()
	// in reads what is typed there, until restore; nil where that is no terminal.
	in io.Reader
}

// restore gives the terminal back as it was. It may be called twice.
func (t *tty) restore() {
	t.once.Do(func() {
		for i := len(t.undo) - 1; i >= 0; i-- {
			t.undo[i]()
		}
	})
}

// attach gives the program a terminal when -t asks for one. A terminal on
// stdin is put into raw mode: keys, Ctrl-C among them, go to the program.
func (a *app) attach(f *runFlags, call *session.Call, stdin *os.File) (*tty, error) {
	t := &tty{}
	if !f.tty {
		return t, nil
	}
	screen := a.out.file
	if !isTerminal(screen) {
		screen = a.in
	}
	size := sandbox.WindowSize{Rows: 24, Cols: 80}
	if isTerminal(screen) {
		size = windowSize(screen, size)
	}
	resize := make(chan sandbox.WindowSize, 1)
	call.TTY = &sandbox.Terminal{Size: size, Resize: resize}
	call.Term = os.Getenv("TERM")
	if isTerminal(screen) {
		t.undo = append(t.undo, onResize(func() {
			size = windowSize(screen, size)
			select { // only the newest size counts
			case <-resize:
			default:
			}
			resize <- size
		}))
	}
	if stdin != nil && isTerminal(stdin) {
		fd := int(stdin.Fd())
		before, err := term.MakeRaw(fd)
		if err != nil {
			t.restore()
			return nil, &sandbox.Error{Op: "-t", Kind: sandbox.ErrUnavailable, Problem: "the terminal cannot be put into raw mode", Hint: "run without -t", Cause: err}
		}
		t.undo = append(t.undo, func() { term.Restore(fd, before) })
	}
	if isTerminal(screen) {
		t.undo = append(t.undo, settle)
	}
	if stdin != nil && isTerminal(stdin) {
		in, end, err := endable(stdin)
		if err == nil {
			t.in, t.undo = in, append(t.undo, end)
		}
	}
	return t, nil
}

func windowSize(f *os.File, otherwise sandbox.WindowSize) sandbox.WindowSize {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		return otherwise
	}
	return sandbox.WindowSize{Rows: uint16(min(rows, 65535)), Cols: uint16(min(cols, 65535))}
}
