// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/faketest"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// meteredLevel is the fake level with counters that a test sets. Its sandboxes can
// be written down: what is restored is a new one, whose counters begin at 0, as on
// a level whose counters are the host's.
type meteredLevel struct {
	faketest.Driver
	mu    sync.Mutex
	use   sandbox.Usage
	blind error
	asked int
	began *sandbox.Spec // what the last sandbox was to be
}

type meteredBox struct {
	sandbox.Instance
	sandbox.Pauser
	d *meteredLevel
}

func newMeteredLevel() *meteredLevel {
	d := &meteredLevel{}
	d.Agent = true
	d.Caps = func(c *sandbox.Capabilities) { c.Snapshot = true }
	d.Begun = func(s *sandbox.Spec, _ *sandbox.Exec) { d.began = s }
	d.uses(0, 100)
	return d
}

// uses sets the counters.
func (d *meteredLevel) uses(cpu time.Duration, processes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.use = sandbox.Usage{CPU: &cpu, Processes: &processes}
}

func (d *meteredLevel) readings() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

func (d *meteredLevel) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	box, err := d.Driver.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &meteredBox{box, box.(sandbox.Pauser), d}, nil
}

func (d *meteredLevel) Restore(ctx context.Context, spec *sandbox.Spec, _ string) (sandbox.Instance, error) {
	d.uses(0, 100)
	return d.Start(ctx, spec)
}

func (b *meteredBox) Snapshot(context.Context, string, bool) error { return nil }

func (b *meteredBox) Usage(context.Context) (sandbox.Usage, error) {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	b.d.asked++
	return b.d.use, b.d.blind
}

// under opens sandboxes of a metered level under a policy.
func under(t *testing.T, text string) (*home, *meteredLevel) {
	t.Helper()
	f, err := policy.Parse("policy.yaml", []byte("version: 1\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	d := newMeteredLevel()
	h := newHome(t, func(o *SandboxesOptions) {
		o.Drivers = map[string]sandbox.Driver{"gvisor": d}
		o.Policies = map[string]*policy.File{"": f}
	})
	return h, d
}

// endOf is the record of a sandbox's end, which has to be under way.
func (h *home) endOf(t *testing.T, id string) *sandbox.Result {
	t.Helper()
	if !h.left(id) {
		t.Fatal("it goes on")
	}
	for {
		events, more := h.Events(h.key, 0)
		if n := len(events); n > 0 && events[n-1].Kind == "ended" && events[n-1].Sandbox == id {
			return h.recorded(t, id, "end_sandbox")[0]
		}
		<-more
	}
}

// left says whether a sandbox has ended or is about to.
func (h *home) left(id string) bool {
	l := h.inventory.get(id)
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.in == nil || l.in.gone.Err() != nil
}

// recorded are the results of a sandbox's records of one kind.
func (h *home) recorded(t *testing.T, id, kind string) (out []*sandbox.Result) {
	t.Helper()
	for r, err := range h.log.Query(t.Context(), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Call.Sandbox == id && r.Call.Kind == kind {
			out = append(out, r.Ending.Result)
		}
	}
	return out
}

// lives fails the test when a sandbox does not.
func (h *home) lives(t *testing.T, id string) {
	t.Helper()
	if h.left(id) {
		t.Fatal("it has ended")
	}
}

func TestNothingIsSampledUnasked(t *testing.T) {
	h, d := under(t, "limits: {memory: 128MiB}\n")
	set := len(h.clock.timers)
	h.create(t, Create{})
	h.clock.move(readEvery - 1)
	if n := d.readings(); n != 0 || len(h.clock.timers) != set+2 {
		t.Errorf("%d readings were taken, %d timers are set", n, len(h.clock.timers))
	}
}

func TestCPUTimeOfAllProcessesEnds(t *testing.T) {
	h, d := under(t, "limits: {cpu_time: 10s}\n")
	s := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour}})
	d.uses(6*time.Second, 3)
	h.clock.move(500 * time.Millisecond)
	h.lives(t, s.ID)
	// What it used counts on when it is resumed, though the level's counter does not.
	for range 2 {
		got, err := h.Handle(h.key, s.ID).Pause(t.Context())
		if err != nil || got.CPU != 6*time.Second {
			t.Fatalf("paused after %v: %v", got, err)
		}
		kept, err := h.reg.Get(t.Context(), s.ID)
		if err != nil || kept.CPU != 6*time.Second {
			t.Fatalf("the registry has %v, %v", kept, err)
		}
		if _, err := h.Handle(h.key, s.ID).Resume(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	d.uses(4*time.Second-1, 1)
	h.clock.move(500 * time.Millisecond)
	h.lives(t, s.ID)
	d.uses(4*time.Second, 1)
	h.clock.move(500 * time.Millisecond)
	res := h.endOf(t, s.ID)
	if res.Status != sandbox.StatusResourceExceeded || res.Resource != sandbox.LimitCPUTime {
		t.Errorf("recorded %+v", res)
	}
	if _, err := h.Handle(h.key, s.ID).Get(t.Context()); err == nil || !strings.Contains(err.Error(), "CPU time of 10s is used up") {
		t.Errorf("why: %v", err)
	}
}

func TestWatchRules(t *testing.T) {
	h, d := under(t, `watch:
  - {when: "processes >= 200", do: report}
  - {when: "cpu_percent > 80", for: 2s}
`)
	s := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour}})
	const every = 100 * time.Millisecond
	used := time.Duration(0)
	for i := range 20 { // it swings faster than a reader wants to see
		used += every / 2
		d.uses(used, 100+100*(i%2))
		h.clock.move(every)
	}
	h.lives(t, s.ID)
	if got := h.recorded(t, s.ID, "watch_sandbox"); len(got) != 1 || got[0].Rule != "policy.yaml:3" || got[0].Status != sandbox.StatusSuccess {
		t.Errorf("reports recorded: %+v", got)
	}
	var kinds []string
	events, _ := h.Events(h.key, 0)
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	if got := strings.Join(kinds, " "); got != "created watch" {
		t.Errorf("events %s", got)
	}
	for range 21 {
		h.lives(t, s.ID)
		used += every
		d.uses(used, 1)
		h.clock.move(every)
		if h.left(s.ID) {
			break
		}
	}
	res := h.endOf(t, s.ID)
	if res.Status != sandbox.StatusResourceExceeded || res.Resource != sandbox.LimitCPUs || res.Rule != "policy.yaml:4" || !strings.Contains(res.Reason, "has held for 2s") {
		t.Errorf("recorded %+v", res)
	}
}

// What cannot be held is not left out silently.
func TestUseThatCannotBeRead(t *testing.T) {
	for _, when := range []string{"disk > 1MiB", "memory > 1MiB"} { // nowhere, and not on this level
		t.Run(when, func(t *testing.T) {
			h, _ := under(t, "watch: [{when: \""+when+"\"}]\n")
			_, err := h.Create(t.Context(), h.key, Create{})
			var e *sandbox.Error
			if !errors.As(err, &e) || e.Kind != sandbox.ErrUnsupported || !strings.Contains(e.Error(), when) || e.Rule != "policy.yaml:2" {
				t.Errorf("a rule about what is not measured: %v", err)
			}
			if page, err := h.List(t.Context(), h.key, Filter{}); err != nil || len(page.Sandboxes) != 0 {
				t.Errorf("it left %v, %v", page, err)
			}
		})
	}
}

func TestBlindSandboxEnds(t *testing.T) {
	h, d := under(t, "limits: {cpu_time: 10s}\n")
	s := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour}})
	d.mu.Lock()
	d.blind = errors.New("nobody answers")
	d.mu.Unlock()
	h.clock.move(session.MaxBlind - 1)
	h.lives(t, s.ID)
	h.clock.move(500 * time.Millisecond)
	if res := h.endOf(t, s.ID); res.Status != sandbox.StatusError || !strings.Contains(res.Reason, "nobody answers") {
		t.Errorf("recorded %+v", res)
	}
}

// A wall limit counts the time that a sandbox runs, however often it is extended.
func TestWallBoundsTheLifetime(t *testing.T) {
	h, _ := under(t, "limits: {wall: 10m}\n")
	s := h.create(t, Create{Lifetime: Lifetime{Timeout: time.Hour, OnTimeout: registry.Pause}})
	if s.Ends.Sub(s.Created) != 10*time.Minute {
		t.Errorf("it is to end after %s", s.Ends.Sub(s.Created))
	}
	h.clock.move(4 * time.Minute)
	if got, err := h.Handle(h.key, s.ID).SetTimeout(t.Context(), 20*time.Minute); err != nil || got.Ends.Sub(h.clock.Now()) != 6*time.Minute {
		t.Errorf("extended: %+v, %v", got, err)
	}
	if _, err := h.Handle(h.key, s.ID).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.clock.move(time.Hour)
	if got, err := h.Handle(h.key, s.ID).Resume(t.Context(), time.Hour); err != nil || got.Ends.Sub(h.clock.Now()) != 6*time.Minute {
		t.Errorf("resumed: %+v, %v", got, err)
	}
	h.clock.move(6*time.Minute - 1)
	h.lives(t, s.ID)
	h.clock.move(1)
	if res := h.endOf(t, s.ID); res.Status != sandbox.StatusTimeout || res.Resource != sandbox.LimitWall {
		t.Errorf("recorded %+v", res)
	}
}

// Each limit that a policy writes down holds in a persistent sandbox, or
// refuses by its name: there is no third.
func TestWrittenLimitsHoldOrRefuse(t *testing.T) {
	written := map[sandbox.LimitName]string{
		sandbox.LimitWall: "7m", sandbox.LimitCPUTime: "7s", sandbox.LimitCPUs: "0.5", sandbox.LimitMemory: "77MiB", sandbox.LimitProcesses: "77",
		sandbox.LimitOpenFiles: "77", sandbox.LimitFileSize: "7MiB", sandbox.LimitDisk: "7MiB", sandbox.LimitInodes: "777", sandbox.LimitTmp: "7MiB",
		sandbox.LimitIO: "7MiB/s", sandbox.LimitIOPS: "77", sandbox.LimitOutput: "7",
	}
	// Those that caisson itself holds; all others are the level's, which is told.
	ours := map[sandbox.LimitName]func(*testing.T, *home, *meteredLevel, *Sandbox){
		sandbox.LimitWall: func(t *testing.T, h *home, _ *meteredLevel, s *Sandbox) {
			h.clock.move(7 * time.Minute)
			h.endOf(t, s.ID)
		},
		sandbox.LimitCPUTime: func(t *testing.T, h *home, d *meteredLevel, s *Sandbox) {
			d.uses(7*time.Second, 9)
			h.clock.move(time.Second)
			h.endOf(t, s.ID)
		},
		sandbox.LimitOutput: func(t *testing.T, h *home, _ *meteredLevel, s *Sandbox) {
			if got := h.sh(t, s.ID, "echo 0123456789"); got != "012345\n" {
				t.Errorf("it let %q through", got)
			}
			c := &session.Call{}
			c.Argv = []string{"sh", "-c", "echo 0123456789; exec sleep 1000"}
			p, err := h.Handle(h.key, s.ID).Start(t.Context(), c, StartOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			for err == nil {
				var o sandbox.Output
				o, err = p.Next()
				got = append(got, o.Data...)
			}
			if err != io.EOF || string(got) != "0123456" {
				t.Errorf("followed, it let %q through, %v", got, err)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if all := h.recorded(t, s.ID, "run_command"); all[0].Resource != sandbox.LimitOutput && all[len(all)-1].Resource != sandbox.LimitOutput {
				t.Errorf("recorded as %+v", all)
			}
		},
	}
	d := newMeteredLevel()
	var off sandbox.LimitName // what the level does not hold
	held := d.Caps
	d.Caps = func(c *sandbox.Capabilities) {
		held(c)
		delete(c.Limits, off)
	}
	h := newHome(t, nil)
	for _, name := range sandbox.LimitNames() {
		t.Run(string(name), func(t *testing.T) {
			if written[name] == "" {
				t.Fatal("nothing is known of this limit here")
			}
			f, err := policy.Parse("policy.yaml", []byte("version: 1\nlimits:\n  "+string(name)+": "+written[name]+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			h.reopen(t, func(o *SandboxesOptions) {
				o.Drivers = map[string]sandbox.Driver{"gvisor": d}
				o.Policies = map[string]*policy.File{"": f}
			})
			off = ""
			s, err := h.Create(t.Context(), h.key, Create{})
			test := ours[name]
			switch {
			case err != nil && !refusesByName(err, name):
				t.Fatal(err)
			case err == nil && test == nil:
				if told := d.began.Limits; !told.InForce(name) || !told.Explicit[name] {
					t.Errorf("the level was not told: %+v", told)
				}
			case err == nil:
				test(t, h, d, s)
			}
			d.uses(0, 1)
			if off = name; name == sandbox.LimitWall || name == sandbox.LimitOutput {
				return // no level's to hold
			}
			if _, err := h.Create(t.Context(), h.key, Create{}); !refusesByName(err, name) {
				t.Errorf("on a level that does not hold it: %v", err)
			}
		})
	}
}

func refusesByName(err error, name sandbox.LimitName) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.Kind == sandbox.ErrUnsupported && e.Op == "limit "+string(name) && e.Rule == "policy.yaml:3"
}

// reopen closes the sandboxes of h and opens them changed.
func (h *home) reopen(t *testing.T, change func(*SandboxesOptions)) {
	t.Helper()
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.open(t, func(o *SandboxesOptions) { change(o); o.EndOnClose = true })
}
