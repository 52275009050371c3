// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/toolcall"
)

// P12 and F23 are about what decides calls and what is recorded of them. They go at an Office, whose policy shows a directory of the
// host's to what runs; a call that should not have run is known by the file that
// it made there. What the Office answers is not looked at, but for calls that are
// allowed: when those do not run, nothing was shown.

// desk is one Office with its directory.
type desk struct {
	*Office
	state, work, policy string
	suite               *suite
}

// who makes calls. None is this host's owner's unless a case is about that.
const who = "caisson attack"

// desk opens an Office under a policy whose sections are more.
func (s *suite) desk(ctx context.Context, id, more string) (*desk, error) {
	if s.Open == nil {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "attack", "this program opens no caisson for it")
	}
	dir := filepath.Join(s.dir, id)
	d := &desk{state: dir + "/state", work: dir + "/work", policy: dir + "/policy.yaml", suite: s}
	// Open to everybody: what runs has a user of its own, and the test is who makes it run.
	err := errors.Join(os.MkdirAll(d.work, 0o755), os.Chmod(d.work, 0o777))
	if err == nil {
		err = d.reopen(ctx, more)
	}
	return d, err
}

// reopen has the policy say something else.
func (d *desk) reopen(ctx context.Context, more string) (err error) {
	if d.Office != nil {
		_ = d.Close()
	}
	text := fmt.Sprintf("version: 1\nisolation: %q\nlimits: {wall: 60s}\nfiles:\n  workspace: {source: %q, mode: rw}\n  mounts: [{source: %q, target: %s}]\n%s",
		d.suite.Isolation, d.work, d.suite.Program, probe.AtProbe, more)
	if err := os.WriteFile(d.policy, []byte(text), 0o600); err != nil {
		return err
	}
	d.Office, err = d.suite.Open(ctx, OfficeOptions{Dir: d.state, Policy: d.policy})
	return err
}

// run makes a call of a program, by the owner of this host.
func (d *desk) run(ctx context.Context, argv ...string) error {
	c := &session.Call{Frontend: "attack", Call: policy.Call{Actor: who, Operator: true, Argv: argv}}
	res, err := d.Do(ctx, c, session.IO{Stdout: io.Discard, Stderr: io.Discard})
	if err == nil && res.Status == sandbox.StatusDenied {
		err = &sandbox.Error{Kind: sandbox.ErrDenied, Problem: res.Reason, Hint: res.Hint, Rule: res.Rule}
	}
	return err
}

// tool calls one, as an agent does.
func (d *desk) tool(ctx context.Context, name, arguments string) error {
	_, err := d.CallTool(ctx, &toolcall.Call{Name: name, Args: []byte(arguments), Frontend: "attack", Actor: who})
	return err
}

// made says that a canary is there.
func (d *desk) made(name string) bool {
	_, err := os.Lstat(filepath.Join(d.work, name))
	return err == nil
}

// works is the finding of a case whose allowed call did not do what it is to do;
// Pass when it did.
func (d *desk) works(canary string, err error) finding {
	switch {
	case d.made(canary):
		return pass()
	case err != nil:
		return unable(fmt.Errorf("what is allowed did not run: %w", err))
	}
	return finding{verdict: Unclear, reason: "what is allowed did not run"}
}

// shorten is a line for people.
func shorten(line string) string {
	if len(line) > 120 {
		return fmt.Sprintf("%q and %d bytes more", line[:60], len(line)-60)
	}
	return fmt.Sprintf("%q", line)
}
