// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// What a terminal is sent after a program that had it: the end of a sequence that was left
// open; plain text; off with what makes it send by itself (mouse, focus). And a question,
// which it answers after all others: the Device Status Report of ECMA-48.
const (
	afterProgram = "\x1b\\\x1b[0m\x0f\x1b(B\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l"
	askStatus    = "\x1b[5n"
	statusIsWell = "\x1b[0n"
)

// How long a terminal's first answer is waited for, how long for more once it has answered,
// and for all of it. A program may have asked for the status, too, so its answer alone is
// no end.
const (
	firstAnswer = 300 * time.Millisecond
	nextAnswer  = 50 * time.Millisecond
	lastAnswer  = time.Second
)

// settle throws away what is typed at the terminal that a program had: what the program
// asked the terminal and did not wait for, the user's shell would read as a command, or
// a question of caisson's as its answer. Where it is not ours to use, nothing is done.
func settle() {
	tty, err := openTerminal()
	if err != nil {
		return
	}
	defer tty.Close()
	fd := int(tty.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return
	}
	defer term.Restore(fd, before)
	if name := os.Getenv("TERM"); name != "" && name != "dumb" && ready(fd, unix.POLLOUT, 0) {
		if _, err := io.WriteString(tty, afterProgram+askStatus); err == nil {
			readAnswers(fd)
		}
	}
	_ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH)
}

// readAnswers reads what the terminal sends, until it has said that it is well and is still.
func readAnswers(fd int) {
	end, wait := time.Now().Add(lastAnswer), firstAnswer
	var last []byte
	for time.Now().Before(end) && ready(fd, unix.POLLIN, wait) {
		var b [4096]byte
		n, err := unix.Read(fd, b[:])
		if err != nil || n == 0 {
			return
		}
		last = append(last, b[:n]...)
		if bytes.Contains(last, []byte(statusIsWell)) {
			wait = nextAnswer
		}
		last = last[max(0, len(last)-len(statusIsWell)+1):]
	}
}

// ready waits until a terminal can be read or written.
func ready(fd int, events int16, wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		n, err := unix.Poll(fds, int(wait.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n == 1 && fds[0].Revents&events != 0
		}
	}
}
