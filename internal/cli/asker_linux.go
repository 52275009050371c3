// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

// asker asks on the terminal that this process was started from, whatever its
// streams are. It is not used in the background: another program has the
// terminal then, and its keys are not answers of ours.
type asker struct {
	a       *app
	signals <-chan syscall.Signal // one of them is a no
}

// terminalAsker is nil where there is no such terminal.
func (a *app) terminalAsker(signals <-chan syscall.Signal) question.Asker {
	tty, err := openTerminal()
	if err != nil {
		return nil
	}
	tty.Close()
	return &asker{a, signals}
}

// openTerminal opens the controlling terminal, in whose foreground this is.
func openTerminal() (*os.File, error) {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err == nil && group != unix.Getpgrp() {
		err = errors.New("this is not in the foreground of its terminal")
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/tty"), nil
}

func (*asker) Channel() approval.Channel { return approval.Terminal }

// Ask shows r and reads one line. Keys that were pressed before it was shown do
// not count.
func (k *asker) Ask(ctx context.Context, r *approval.Request) (approval.Who, question.Answer, error) {
	tty, err := openTerminal()
	if err != nil {
		return approval.Who{}, question.Answer{}, err
	}
	defer tty.Close()
	fmt.Fprintf(tty, "\r\n%s\r\n%s", k.a.paint("1", "caisson: this needs approval"), strings.ReplaceAll(r.View.String(), "\n", "\r\n"))
	line, err := k.question(ctx, tty, fmt.Sprintf("Let it run (%s)? Write yes, or press Enter for no: ", r.Seal()))
	if err != nil {
		return approval.Who{}, question.Answer{}, err
	}
	return approval.AtTerminal(actor()), question.Answer{Yes: line == "yes", Digest: r.Digest, Note: "at the terminal"}, nil
}

// question reads an answer, which a signal or the end of ctx cuts short.
func (k *asker) question(ctx context.Context, tty *os.File, text string) (string, error) {
	if err := unix.IoctlSetInt(int(tty.Fd()), unix.TCFLSH, unix.TCIFLUSH); err != nil {
		return "", err
	}
	over, cut, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer over.Close()
	fmt.Fprint(tty, text)
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		line, err := readLine(int(tty.Fd()), int(over.Fd()))
		got <- answer{line, err}
	}()
	var why error
	for why == nil {
		select {
		case a := <-got:
			cut.Close()
			return a.line, a.err
		case s := <-k.signals:
			if asksForTheEnd(s) { // others are for the program, which is not there yet
				why = fmt.Errorf("ended by %s", signalName(s))
			}
		case <-ctx.Done():
			why = context.Cause(ctx)
		}
	}
	cut.Close()
	<-got
	fmt.Fprintf(tty, "\r\n")
	return "", why
}

// readLine reads a line of a terminal, until over can be read, or has no writer.
func readLine(tty, over int) (string, error) {
	var line []byte
	for {
		fds := []unix.PollFd{{Fd: int32(tty), Events: unix.POLLIN}, {Fd: int32(over), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return "", err
		}
		if fds[1].Revents != 0 {
			return "", os.ErrDeadlineExceeded
		}
		if fds[0].Revents == 0 {
			continue
		}
		var b [256]byte
		n, err := unix.Read(tty, b[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return "", err
		case n == 0:
			return "", nil // Ctrl-D: no answer
		}
		line = append(line, b[:max(n, 0)]...)
		if text, _, done := strings.Cut(string(line), "\n"); done || len(line) > 1024 {
			return strings.TrimSpace(text), nil
		}
	}
}

// confirm shows a request at the terminal and asks whether an approver means it.
func (a *app) confirm(ctx context.Context, r *approval.Request) (bool, error) {
	tty, err := openTerminal()
	if err != nil {
		return false, &sandbox.Error{Op: "approve " + r.ID, Kind: sandbox.ErrInvalid, Problem: "there is no terminal to confirm it at", Cause: err,
			Hint: "look at it with caisson approvals show, and name the digest that it shows: caisson approvals approve " + r.ID + " DIGEST"}
	}
	defer tty.Close()
	fmt.Fprint(tty, strings.ReplaceAll(r.View.String(), "\n", "\r\n"))
	line, err := (&asker{a: a}).question(ctx, tty, fmt.Sprintf("Let it run (%s)? Write yes, or press Enter to leave it as it is: ", r.Seal()))
	return line == "yes", err
}
