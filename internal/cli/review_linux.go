// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
)

// review asks at the terminal what becomes of a change set: all of it, file by file, or
// nothing. Without a terminal it stays as it is, and so it does after a signal.
func (a *app) review(ctx context.Context, s *opened, c *sandbox.Changes, signals <-chan syscall.Signal) error {
	if c == nil || c.ID == "" {
		return nil
	}
	tty, err := openTerminal()
	if err != nil {
		a.note("there is no terminal to ask at: the change set is kept")
		return nil
	}
	defer tty.Close()
	store, err := s.ChangeSets()
	if err != nil {
		return err
	}
	set, err := store.Get("", c.ID)
	if err != nil {
		return err
	}
	r := &reviewer{asker: &asker{a, signals}, tty: tty, store: store, set: set}
	o, drop, err := r.decide(ctx)
	switch {
	case err != nil:
		a.note("%v: the change set is kept", err)
		return nil
	case drop:
		return s.DropChanges(ctx, byOperator(), set.ID)
	case o == nil:
		a.note("the change set is kept: caisson changes show %s", set.ID)
		return nil
	}
	o.Digest = set.Digest
	applied, err := s.ApplyChanges(ctx, byOperator(), set.ID, *o)
	if applied != nil {
		for _, c := range applied.Conflicts {
			a.note("conflict: %s: %s", changes.Shown(c.Path), c.Why)
		}
		a.note("%d applied; the change set is kept: caisson changes show %s", len(applied.Paths), set.ID)
	}
	return err
}

// reviewer asks about one set.
type reviewer struct {
	*asker
	tty   *os.File
	store *changes.Store
	set   *changes.Set
}

// decide asks about all of it first; nil is to keep it as it is.
func (r *reviewer) decide(ctx context.Context) (o *changes.ApplyOptions, drop bool, err error) {
	if err := changes.WriteStat(r.tty, r.set); err != nil {
		return o, false, err
	}
	question := fmt.Sprintf("Apply to %s? [a]ll that is not held back, [f]ile by file, [d]rop, Enter to keep: ", changes.Shown(r.set.Name))
	for {
		line, err := r.question(ctx, r.tty, question)
		if err != nil {
			return o, false, err
		}
		switch strings.ToLower(line) {
		case "a", "all":
			return &changes.ApplyOptions{}, false, nil
		case "f", "file":
			o, err = r.each(ctx)
			return o, false, err
		case "d", "drop":
			return o, true, nil
		case "":
			return o, false, nil
		}
	}
}

// each asks about one file after the other. What is held back takes a whole yes. A yes is
// for that entry alone.
func (r *reviewer) each(ctx context.Context) (*changes.ApplyOptions, error) {
	o := &changes.ApplyOptions{Exact: true}
	for i := range r.set.Entries {
		e := &r.set.Entries[i]
		if e.Type == changes.Dir && e.Op == changes.Add && len(e.Held) == 0 {
			continue // it comes with what lies in it
		}
		if err := r.show(e); err != nil {
			return nil, err
		}
		text := "Apply it? [y]es, Enter for no, [q]uit: "
		if len(e.Held) > 0 {
			text = "It is held back. Apply it? Write yes, Enter for no, [q]uit: "
		}
		line, err := r.question(ctx, r.tty, text)
		if err != nil {
			return nil, err
		}
		switch answer := strings.ToLower(line); {
		case answer == "q" || answer == "quit":
			return unlessNone(o), nil
		case len(e.Held) > 0 && answer == "yes":
			o.Held = append(o.Held, e.Path)
		case len(e.Held) == 0 && (answer == "y" || answer == "yes"):
			o.Paths = append(o.Paths, e.Path)
		}
	}
	return unlessNone(o), nil
}

// unlessNone is nil where nothing was said yes to: no path would mean all of them.
func unlessNone(o *changes.ApplyOptions) *changes.ApplyOptions {
	if len(o.Paths) == 0 && len(o.Held) == 0 {
		return nil
	}
	if len(o.Paths) == 0 {
		o.Paths = o.Held
	}
	return o
}

// show shows what was done to one path.
func (r *reviewer) show(e *changes.Entry) error {
	var text strings.Builder
	if err := r.store.WritePatch(&text, r.set, e.Path); err != nil {
		return err
	}
	_, err := io.WriteString(r.tty, "\n"+text.String())
	return err
}

// input reads a terminal until its end is called: a reader that still waits for a line
// when the program has ended would take the answer to the question that comes then.
type input struct {
	tty  *os.File
	over *os.File // readable, or without a writer: it has ended
}

// endable makes an input of a terminal.
func endable(tty *os.File) (_ io.Reader, end func(), err error) {
	over, cut, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return &input{tty, over}, func() { cut.Close() }, nil
}

// Read waits for what is typed.
func (i *input) Read(p []byte) (int, error) {
	for {
		fds := []unix.PollFd{{Fd: int32(i.tty.Fd()), Events: unix.POLLIN}, {Fd: int32(i.over.Fd()), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case fds[1].Revents != 0:
			return 0, io.EOF
		case fds[0].Revents != 0:
			return i.tty.Read(p)
		}
	}
}
