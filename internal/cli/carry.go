// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/network"
)

// carryOut runs the call with the terminal, the signals and the streams of
// this process, and prints what came of it.
func (a *app) carryOut(ctx context.Context, f *runFlags, s *opened, call *session.Call, stdin *os.File) error {
	known, err := accepted()
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var terminal atomic.Pointer[tty]
	sig := listen(end, a.giveUp(&terminal))
	defer sig.stop()
	call.Signals = sig.forward
	call.Ask, call.TypedInput = a.terminalAsker(sig.forward), isTerminal(stdin)

	var reports []string
	call.OnNotice = func(s string) { a.note("%s", s) }
	var lacking session.Lacking
	call.OnLacking = func(l session.Lacking) { lacking = l }
	call.OnRefused = a.refusals()
	call.OnReport = func(r policy.Fired) {
		reports = append(reports, r.String())
		a.note("watch: %s", r)
	}
	st := a.startStats(f.stats, call)
	pulls, packs := a.startProgress("pulling "+call.Image), a.startProgress("packing what virtual machines show of this host, once until it changes")
	defer pulls.end()
	defer packs.end()
	call.OnPull, call.OnPack = pulls.set, packs.set
	t, err := a.attach(f, call, stdin)
	if err != nil {
		return err
	}
	terminal.Store(t)
	defer t.restore()

	streams, finish := a.streams(f, t, stdin)
	res, err := s.Do(ctx, call, streams)
	finish()
	t.restore()
	st.stop(res)
	if got := sig.got(); got != 0 && (res == nil || res.Signal == "SIGKILL" && res.Status == sandbox.StatusError) {
		// Ended from outside: as a shell shows it.
		a.code = 128 + int(got)
		if res == nil {
			a.say("ended by %s before the program ran", signalName(got))
			return nil
		}
		res.Reason = "ended by " + signalName(got)
	} else if res != nil {
		a.code = exitCode(res)
	}
	if res != nil {
		if res.Status != sandbox.StatusDenied {
			a.lacking(s.state, known, lacking)
		}
		a.show(f, res, reports)
		a.hintUnseen(f, call, res)
		a.hintShell(f, call, res)
		a.hintToolchain(f, call, res)
		a.hintGit(f, call, res)
		if f.review && !f.json {
			err = errors.Join(err, a.review(ctx, s, res.Changes, sig.forward))
		}
	}
	return err
}

// streams connects the program. With --json everything is kept; on a terminal
// what it would obey is filtered out.
func (a *app) streams(f *runFlags, t *tty, stdin *os.File) (io session.IO, finish func()) {
	finish = func() {}
	if stdin != nil {
		io.Stdin = stdin
	}
	if t.in != nil {
		io.Stdin = t.in
	} else if f.review && stdin != nil && isTerminal(stdin) {
		if in, end, err := endable(stdin); err == nil {
			io.Stdin, finish = in, end
		}
	}
	if f.json {
		return io, finish
	}
	out, stop1 := a.output(a.out.file, f)
	err, stop2 := a.output(a.err, f)
	io.Stdout, io.Stderr = out, err
	end := finish
	return io, func() { stop1(); stop2(); end() }
}

func (a *app) output(to *os.File, f *runFlags) (io.Writer, func()) {
	if f.tty || f.raw || !isTerminal(to) {
		return to, func() {}
	}
	fl := newFilter(to)
	return fl, func() { fl.Close() }
}

// maxRefusals is how many refused connections are shown; the result and the
// record have more.
const maxRefusals = 10

// refusals shows attempts of the program's to reach what is not allowed. They
// come one after the other.
func (a *app) refusals() func(network.Refusal) {
	shown := 0
	return func(r network.Refusal) {
		switch shown++; {
		case shown == maxRefusals+1:
			a.note("network: more connections were refused; caisson audit has them")
		case shown > maxRefusals:
		case r.Hint != "":
			a.note("network: %s (%s)", r, r.Hint)
		default:
			a.note("network: %s", r)
		}
	}
}
