// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// endingBox is a sandbox whose level says after a while that a limit has ended it.
type endingBox struct {
	sandbox.Instance
	ended chan struct{}
}

func (b *endingBox) Ended() <-chan struct{} { return b.ended }

func (b *endingBox) Limit() sandbox.LimitName { return sandbox.LimitMemory }

// The level's word on what ended a program counts, although the agent's comes first;
// where the level says nothing, it is not waited for for long.
func TestAwaitEnd(t *testing.T) {
	lost, code := sandbox.Errorf(sandbox.ErrUnavailable, "exec", "the guest agent did not answer"), 3
	for name, c := range map[string]struct {
		exit  guest.Exit
		err   error
		after time.Duration // when the level says it
		want  sandbox.LimitName
	}{
		"the agent is lost":             {guest.Exit{}, lost, time.Second, sandbox.LimitMemory},
		"the agent says SIGKILL":        {guest.Exit{Signal: "SIGKILL"}, nil, 100 * time.Millisecond, sandbox.LimitMemory},
		"the level was first":           {guest.Exit{Code: &code}, nil, 0, sandbox.LimitMemory},
		"lost, and the sandbox lives":   {guest.Exit{}, lost, time.Hour, ""},
		"killed, and the sandbox lives": {guest.Exit{Signal: "SIGKILL"}, nil, time.Hour, ""},
		"it ended by itself":            {guest.Exit{Code: &code}, nil, time.Second, ""},
		"it could not be started":       {guest.Exit{}, errors.New("no program"), time.Second, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			box, began := &endingBox{ended: make(chan struct{})}, time.Now()
			if c.after == 0 {
				close(box.ended)
			} else {
				time.AfterFunc(c.after, func() { close(box.ended) })
			}
			res := &sandbox.Result{}
			over := AwaitEnd(t.Context(), box, c.exit, c.err)
			err := ended(t.Context(), box, res, c.exit, c.err)
			if res.Resource != c.want || over != (c.want != "") || c.want != "" && (err != nil || res.ExitCode != nil) {
				t.Errorf("%s: over %v, %+v, %v", name, over, res, err)
			}
			if took := time.Since(began); took > lostMoment || c.exit.Code != nil && took > 0 {
				t.Errorf("%s: waited for %s", name, took)
			}
		})
	}
}

// readBox is a sandbox whose readings a test chooses.
type readBox struct {
	sandbox.Instance
	use  sandbox.Usage
	err  error
	read func() (sandbox.Usage, error) // in the place of both
}

func (b *readBox) Usage(context.Context) (sandbox.Usage, error) {
	if b.read != nil {
		return b.read()
	}
	return b.use, b.err
}

func (b *readBox) Dial(context.Context) (net.Conn, error) { return nil, errors.New("dialled") }

func (b *readBox) Destroy(context.Context) error { return nil }

// agentLevel has a one-shot, and an agent.
type agentLevel struct {
	stub
	box readBox
}

func (d *agentLevel) Start(context.Context, *sandbox.Spec) (sandbox.Instance, error) {
	return &d.box, nil
}

// A rule about what the level does not read here would never fire, and is refused before
// the program is there, whichever layer has it. The one-shot, which reads nothing, is not
// taken instead. CPU time that is too little to be read yet is no such thing, where
// something else is read.
func TestWatchable(t *testing.T) {
	cpu, memory, dialled := time.Second, int64(1), errors.New("dialled")
	for name, c := range map[string]struct {
		metric string
		use    sandbox.Usage
		err    error
		want   error
	}{
		"processors":               {"cpu_percent", sandbox.Usage{CPU: &cpu}, nil, dialled},
		"processors, later":        {"cpu_percent", sandbox.Usage{Memory: &memory}, nil, dialled},
		"processors, nothing read": {"cpu_percent", sandbox.Usage{}, nil, sandbox.ErrUnsupported},
		"memory":                   {"memory", sandbox.Usage{Memory: &memory}, nil, dialled},
		"memory, nothing read":     {"memory", sandbox.Usage{}, nil, sandbox.ErrUnsupported},
		"an engine that is gone":   {"memory", sandbox.Usage{}, sandbox.ErrUnavailable, sandbox.ErrUnavailable},
		"no rule":                  {"", sandbox.Usage{}, nil, dialled},
	} {
		for _, of := range []string{"policy", "call"} {
			d := &agentLevel{box: readBox{use: c.use, err: c.err}}
			b := newBench(t, &d.stub, func(o *Options) {
				o.Drivers = map[string]sandbox.Driver{"gvisor": d}
				if c.metric != "" && of == "policy" {
					o.Policy = parsePolicy(t, "version: 1\nwatch: [{when: '"+c.metric+" > 1'}]\n")
				}
			})
			_, err := b.Do(t.Context(), call(t, func(k *Call) {
				k.TTY = &sandbox.Terminal{}
				if c.metric != "" && of == "call" {
					k.Watch = []policy.WatchRule{{When: c.metric + " > 1", Metric: c.metric, Value: 1}}
				}
			}), IO{})
			if c.want == dialled && (err == nil || err.Error() != "dialled") || c.want != dialled && !errors.Is(err, c.want) {
				t.Errorf("%s, of the %s: %v, want %v", name, of, err, c.want)
			}
			if d.ran != 0 {
				t.Errorf("%s, of the %s: it ran", name, of)
			}
		}
	}
}

// What no level reads is refused on each road, the one-shot's too.
func TestUnmeasured(t *testing.T) {
	d := &stub{}
	b := newBench(t, d, nil)
	_, err := b.Do(t.Context(), call(t, func(c *Call) {
		c.Watch = []policy.WatchRule{{When: "disk > 1MiB", Metric: "disk", Value: 1 << 20}}
	}), IO{})
	if !errors.Is(err, sandbox.ErrUnsupported) || d.ran != 0 || sandbox.Hint(err) == "" {
		t.Errorf("%v, and ran %d times", err, d.ran)
	}
}

// A program whose use cannot be read for long, while something is held by that, is ended;
// what is read again in time ends nothing, and neither does what no rule depends on.
func TestSamplingBlind(t *testing.T) {
	lost := errors.New("nobody answers")
	for name, c := range map[string]struct {
		fails func(since time.Duration) bool
		cares bool
		after time.Duration // when it is ended; 0 is never
	}{
		"from the start":       {func(time.Duration) bool { return true }, true, MaxBlind},
		"later":                {func(since time.Duration) bool { return since > time.Minute }, true, time.Minute + MaxBlind},
		"now and then":         {func(since time.Duration) bool { return since%(20*time.Second) > time.Second }, true, 0},
		"nobody depends on it": {func(time.Duration) bool { return true }, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, box, ended := time.Now(), &readBox{}, time.Duration(0)
			box.read = func() (sandbox.Usage, error) {
				if c.fails(time.Since(began)) {
					return sandbox.Usage{}, lost
				}
				return sandbox.Usage{}, nil
			}
			var blind func(error)
			if c.cares {
				blind = func(err error) {
					ended = time.Since(began)
					if !errors.Is(err, lost) {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			stop := sampling(ctx, box, &sandbox.Exec{Sample: func(sandbox.Usage) {}, SampleEvery: 500 * time.Millisecond}, MaxBlind, blind)
			<-ctx.Done()
			stop()
			if late := ended - c.after; late < 0 || late > time.Second {
				t.Errorf("%s: ended after %s, want %s", name, ended, c.after)
			}
		})
	}
}

// Such an end has its reason, and only a limit or a rule that is read for has one.
func TestBlindProgramEnds(t *testing.T) {
	for limited, want := range map[bool]sandbox.Status{true: sandbox.StatusError, false: sandbox.StatusSuccess} {
		b := newBench(t, &stub{}, nil)
		r := &Invocation{Session: b.Session, Call: call(t, nil)}
		if limited {
			r.Plan.Limits.CPUTime = time.Second
		}
		res, err := r.CarryOut(t.Context(), &sandbox.Exec{}, func(ctx context.Context, _ *sandbox.Exec) (*sandbox.Result, error) {
			if (r.blind != nil) != limited {
				t.Error("whether something depends on what is read is not known")
			}
			if r.blind == nil {
				return exited(0), nil
			}
			r.blind(errors.New("nobody answers"))
			<-ctx.Done()
			return &sandbox.Result{Signal: "SIGKILL"}, nil
		})
		if err != nil || res.Status != want || limited && !strings.Contains(res.Reason, "could not be read for 30s, so that its limits did not hold: nobody answers") {
			t.Errorf("limited %v: %+v, %v", limited, res, err)
		}
	}
}
