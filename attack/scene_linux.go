// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// suite is one run of it.
type suite struct {
	Options
	*plants
}

// scene is one sandbox with a probe in it.
type scene struct {
	call  *session.Call
	out   probeLog
	errs  tail
	enter *io.PipeWriter // what the probe reads
	suite *suite
	stop  context.CancelFunc // ends the call

	done chan struct{} // closed when the call has ended
	res  *sandbox.Result
	err  error
}

// probeTimeout is how long a probe may take to say something. Loaded machines are
// slow; the whole suite takes a fraction of it.
const probeTimeout = 90 * time.Second

// begin starts a sandbox with the probe in it. What is given up is ended by
// ending its input.
func (s *suite) begin(ctx context.Context, change func(*session.Call), args ...string) *scene {
	c := &session.Call{Frontend: "attack"}
	c.Actor, c.Operator, c.Isolation = "caisson attack", true, s.Isolation
	c.Argv = append(append([]string{probe.AtProbe, probe.Word}, args...), s.nonce) // by which the host knows it
	c.Mounts = []policy.MountWish{{Source: s.Program, Target: probe.AtProbe}}
	if change != nil {
		change(c)
	}
	// The default is thirty seconds, which a busy machine needs for what takes one.
	if !c.Limits.Explicit[sandbox.LimitWall] {
		limits := maps.Clone(c.Limits.Explicit)
		if limits == nil {
			limits = map[sandbox.LimitName]bool{}
		}
		limits[sandbox.LimitWall] = true
		c.Limits.Wall, c.Limits.Explicit = probeTimeout, limits
	}
	in, enter := io.Pipe()
	ctx, stop := context.WithCancel(ctx)
	sc := &scene{call: c, enter: enter, suite: s, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(sc.done)
		defer stop()
		sc.res, sc.err = s.Session.Do(ctx, c, session.IO{Stdin: in, Stdout: &sc.out, Stderr: &sc.errs})
		in.CloseWithError(io.ErrClosedPipe) // it is not read any more
	}()
	return sc
}

// wait waits until the probe says that it has come to a point.
func (sc *scene) wait(id string) error { return sc.waits(id, probeTimeout) }

func (sc *scene) waits(id string, timeout time.Duration) error {
	select {
	case <-sc.out.Said(id):
		return nil
	case <-sc.done:
		select {
		case <-sc.out.Said(id): // both are true
			return nil
		default:
		}
		return sc.why()
	case <-time.After(timeout):
		return fmt.Errorf("the probe did not come to its end within %s; its last words: %s", timeout, sc.out.Last())
	}
}

// end lets the probe end and waits for that. It reports whether the level had
// to be helped: processes that outlive their time are killed.
func (sc *scene) end() (helped bool) {
	sc.enter.Close()
	return sc.over(probeTimeout / 3)
}

// over waits for the end, for a while. Then the call is given up; if that does not
// end it, everything is killed that this process has started, other cases' too.
func (sc *scene) over(d time.Duration) (helped bool) {
	for {
		select {
		case <-sc.done:
			return helped
		case <-time.After(d):
			if helped {
				kill(sc.suite.mine())
			}
			sc.stop()
			helped, d = true, probeTimeout/9
		}
	}
}

// kill ends what a level has left.
func kill(list []*process) {
	for _, p := range list {
		if now, err := stat(p.pid); err == nil && now.same(p) {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
	}
}

// why says why a call did not come to run, or ended early.
func (sc *scene) why() error {
	if sc.err != nil {
		return sc.err
	}
	r := sc.res
	if r.Status == sandbox.StatusDenied {
		return &sandbox.Error{Kind: sandbox.ErrDenied, Problem: r.Reason, Hint: r.Hint, Rule: r.Rule}
	}
	how := string(r.Status)
	if r.Resource != "" {
		how += ", " + string(r.Resource)
	}
	if r.ExitCode != nil {
		how += fmt.Sprintf(", exit code %d", *r.ExitCode)
	}
	if r.Signal != "" {
		how += ", " + r.Signal
	}
	for _, u := range r.Uncollected {
		how += ", not collected: " + u.Reason
	}
	if text := sc.errs.text(); text != "" {
		how += ": " + text
	}
	return errors.New("the probe ended early: " + how)
}

// notRun is the finding for cases whose sandbox did not come to run.
func notRun(err error) (Verdict, string, string) {
	if errors.Is(err, sandbox.ErrUnsupported) || errors.Is(err, sandbox.ErrDenied) {
		return NotApplicable, withoutHost(err.Error()), sandbox.Hint(err)
	}
	return Unclear, err.Error(), sandbox.Hint(err)
}

// withoutHost leaves out which of the suite's servers a sandbox could not be
// given a network to: its port is another for each case, and tells nothing.
func withoutHost(reason string) string {
	if host, ok := strings.CutPrefix(reason, "network "); ok {
		if _, why, ok := strings.Cut(host, ": "); ok {
			return why
		}
	}
	return reason
}

// tail keeps the end of what a probe writes to stderr: a crash says why there.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	const maximum = 1024
	t.kept = append(t.kept, p[max(0, len(p)-maximum):]...)
	t.kept = t.kept[max(0, len(t.kept)-maximum):]
	return len(p), nil
}

// text is one line.
func (t *tail) text() string { return strings.Join(strings.Fields(string(t.kept)), " ") }

// settle waits until every process of a list is gone, and returns who is not.
func settle(list []*process, d time.Duration) []*process {
	for end := time.Now().Add(d); ; time.Sleep(10 * time.Millisecond) {
		var left []*process
		for _, p := range list {
			if now, err := stat(p.pid); err == nil && now.same(p) && !zombie(p.pid) {
				left = append(left, p)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// zombie says that a process has ended and waits for its parent.
func zombie(pid int) bool {
	data, err := readProc(pid, "stat")
	_, rest, _ := cutLast(data, ") ")
	return err != nil || strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// mine are the processes of this run's sandboxes now.
func (s *suite) mine() []*process {
	except := []int{os.Getpid()}
	if s.victim != nil {
		except = append(except, s.victim.Process.Pid)
	}
	return ours(s.nonce, except...)
}
