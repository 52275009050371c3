// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"context"
	"io"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Exec is one thing to run in a [Sandbox]: a Command, Code in a Language, or Shell, a line
// for sh.
type Exec struct {
	Command []string
	Shell   string
	// Code, Language and Args are those of a [Request].
	Code     string
	Language string
	Args     []string

	Dir string            // working directory inside; the home directory when empty
	Env map[string]string // on top of the sandbox's own
	// User is whose rights it has: the sandbox's own user when empty, or "root", its own
	// root, on a level that has one.
	User string
	// Timeout is how long it may take; 0 is as long as the policy lets it.
	Timeout time.Duration

	// Stdin, Stdout and Stderr are those of a [Request]. Where an output is nil the Result
	// keeps it, up to 64 MiB unless the output limit is another.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Exec runs a program in the sandbox and waits for its end. A program that ran is a Result,
// however it ended; what the policy refuses is an error, ErrDenied with its rule. When ctx ends
// the program is killed, and the sandbox goes on.
func (s *Sandbox) Exec(ctx context.Context, e Exec) (*Result, error) {
	call, err := e.call()
	if err != nil {
		return nil, err
	}
	res, err := s.handle.Exec(ctx, call, session.IO{Stdin: e.Stdin, Stdout: e.Stdout, Stderr: e.Stderr})
	return res, forGo("Exec", err)
}

// call is e in the road's words.
func (e *Exec) call() (*session.Call, error) {
	given := 0
	for _, is := range []bool{len(e.Command) > 0, e.Shell != "", e.Code != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, &sandbox.Error{Op: "exec", Kind: sandbox.ErrInvalid, Problem: "it is none of a command, a shell line and code, or more than one", Hint: "give one of Command, Shell and Code"}
	}
	c := &session.Call{Frontend: frontend, User: e.User}
	c.Argv, c.Cwd, c.Env = e.Command, e.Dir, e.Env
	switch {
	case e.Shell != "":
		c.Argv = []string{"sh", "-c", e.Shell}
	case e.Code != "":
		c.Argv, c.Source = e.Args, &session.Source{Language: e.Language, Code: []byte(e.Code)}
	}
	if e.Timeout != 0 {
		c.Limits = explicit(Limits{Wall: e.Timeout})
	}
	return c, nil
}
