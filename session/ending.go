// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/network"
)

// Ending is the cause with which the pipeline cancels a run: it names the limit.
type Ending struct {
	Status   sandbox.Status
	Resource sandbox.LimitName
	Rule     string
	Reason   string
}

// Error is the reason.
func (e *Ending) Error() string { return e.Reason }

// endedBy says which limit ended a run, if one did.
func endedBy(ctx context.Context) (reason string, limit bool) {
	var e *Ending
	if errors.As(context.Cause(ctx), &e) {
		return e.Reason, true
	}
	return "", false
}

// errOutputClosed is the cause when the caller's writer failed: its reader went
// away. The program ends as one whose pipe is closed does.
var errOutputClosed = errors.New("the output is closed")

// TimedOut is the end by the wall limit of l.
func TimedOut(l sandbox.Limits) *Ending {
	return &Ending{Status: sandbox.StatusTimeout, Resource: sandbox.LimitWall, Reason: fmt.Sprintf("wall time of %s is over", l.Wall)}
}

// Exceeded is the end by a limit; reason is a sentence for people.
func Exceeded(name sandbox.LimitName, reason string) *Ending {
	return &Ending{Status: sandbox.StatusResourceExceeded, Resource: name, Reason: reason}
}

// settle sets what only the pipeline knows: that it ended the program, and why.
// A program that ended by itself before the kill reached it keeps its own end, but
// for one that failed when its network was closed (settleBudget).
func settle(ctx context.Context, r *sandbox.Result, l sandbox.Limits) {
	var e *Ending
	switch {
	case r.Resource != "" && r.Status == sandbox.StatusResourceExceeded:
		// The level itself held the limit; it only lacks the sentence.
		if r.Reason == "" {
			r.Reason = Sentence(r.Resource, l)
		}
	case r.Signal == "SIGXCPU" && usedUp(r, l):
		// The agent gives each program the limit of all as RLIMIT_CPU, which may
		// be quicker than who adds them up.
		r.Status, r.Resource, r.Reason = sandbox.StatusResourceExceeded, sandbox.LimitCPUTime, Sentence(sandbox.LimitCPUTime, l)
	case r.Signal == "SIGKILL" && errors.As(context.Cause(ctx), &e):
		r.Status, r.Resource, r.Rule, r.Reason = e.Status, e.Resource, e.Rule, e.Reason
	case r.Signal == "SIGKILL" && errors.Is(context.Cause(ctx), network.ErrLost):
		r.Status, r.Reason = sandbox.StatusError, context.Cause(ctx).Error()
	case r.Signal == "SIGKILL" && errors.Is(context.Cause(ctx), errOutputClosed):
		r.Status, r.Signal = sandbox.StatusError, "SIGPIPE"
	case r.Signal == "SIGKILL" && ctx.Err() != nil:
		r.Status, r.Reason = sandbox.StatusError, "ended by the caller"
	}
}

// usedUp says whether the CPU time is, but for what a kernel's counting differs:
// RLIMIT_CPU goes by ticks, and on a busy machine a program is charged ticks of
// which it had a part. One that sends itself the signal has used much less.
func usedUp(r *sandbox.Result, l sandbox.Limits) bool {
	return l.CPUTime > 0 && r.CPUMS != nil && *r.CPUMS >= l.CPUTime.Milliseconds()/2
}

// Sentence says which limit ended a program, with its amount.
func Sentence(name sandbox.LimitName, l sandbox.Limits) string {
	switch name {
	case sandbox.LimitWall:
		return TimedOut(l).Reason
	case sandbox.LimitCPUTime:
		return fmt.Sprintf("CPU time of %s is used up", l.CPUTime)
	case sandbox.LimitMemory:
		return fmt.Sprintf("memory limit of %s reached", Size(l.Memory))
	case sandbox.LimitOutput:
		return fmt.Sprintf("output limit of %s per stream reached", Size(l.Output))
	case sandbox.LimitProcesses:
		return fmt.Sprintf("limit of %d processes reached", l.Processes)
	case sandbox.LimitOpenFiles:
		return fmt.Sprintf("limit of %d open files reached", l.OpenFiles)
	case sandbox.LimitFileSize:
		return fmt.Sprintf("file size limit of %s reached", Size(l.FileSize))
	case sandbox.LimitDisk:
		return fmt.Sprintf("disk limit of %s reached", Size(l.Disk))
	case sandbox.LimitInodes:
		return fmt.Sprintf("limit of %d files and directories reached", l.Inodes)
	case sandbox.LimitTmp:
		return fmt.Sprintf("/tmp limit of %s reached", Size(l.Tmp))
	}
	return fmt.Sprintf("limit %q reached", name)
}

// Size writes bytes for people, in the largest binary unit that is exact
// ("128 MiB"), or with one decimal.
func Size(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	if n == 1 {
		return "1 byte"
	}
	i, rest := 0, n
	for rest >= 1024 && rest%1024 == 0 && i < len(units)-1 {
		rest, i = rest/1024, i+1
	}
	if rest < 10240 || i == len(units)-1 {
		return fmt.Sprintf("%d %s", rest, units[i])
	}
	f := float64(rest)
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// startAllowance is what a start may take on a host that is busy with others.
const startAllowance = 30 * time.Second

// StartAllowance is what building the environment may take on a level, on top of the wall
// limit, before the call is given up.
func StartAllowance(c *sandbox.Capabilities) time.Duration { return startAllowance + c.SlowStart }

// InTime says of what was cut short by that allowance that it was, for people: no level
// does.
func InTime(err error, allowed time.Duration) error {
	var own *sandbox.Error
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &own) {
		return err
	}
	return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Cause: err,
		Problem: fmt.Sprintf("it was not ready within %s", allowed), Hint: "the host is too busy with others, or too slow: try again"}
}

// OfHost says whether an error is about the host, and not about what was asked.
// The operator has to know such an error. Frontends do not show it to clients.
func OfHost(err error) bool {
	for _, kind := range []error{sandbox.ErrInvalid, sandbox.ErrNotFound, sandbox.ErrUnsupported, sandbox.ErrDenied, sandbox.ErrConflict, sandbox.ErrExhausted} {
		if errors.Is(err, kind) {
			return false
		}
	}
	return err != nil
}

// wall is the wall-clock limit. It runs from the moment the driver says that
// the program has started; until then the allowance comes on top, so that a
// level that hangs while it builds an environment is ended too.
type wall struct {
	timer *time.Timer
	limit time.Duration
}

func startWall(l sandbox.Limits, allowed time.Duration, end func(error)) *wall {
	if l.Wall <= 0 {
		return &wall{}
	}
	return &wall{limit: l.Wall, timer: time.AfterFunc(l.Wall+allowed, func() { end(TimedOut(l)) })}
}

func (w *wall) started() {
	if w.timer != nil && w.timer.Stop() {
		w.timer.Reset(w.limit)
	}
}

func (w *wall) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}
