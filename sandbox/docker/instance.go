// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

const (
	// destroyLimit bounds the removal of one container.
	destroyLimit = 30 * time.Second
	// watchEvery is how often a limit that has killed something is looked for.
	watchEvery = 250 * time.Millisecond
	// createMoment is how long an engine may take to make a container that is not
	// wanted any more.
	createMoment = 5 * time.Second
	// endMoment is how long a container may take to end by itself.
	endMoment = 300 * time.Millisecond
	// lastLook is how long Usage waits for the end of a sandbox whose agent has
	// gone: the two are told by different connections.
	lastLook = 2 * time.Second
)

// instance is a container with the agent as its first process.
type instance struct {
	id     string // Spec.ID
	engine *engine
	name   string // the container's
	stream *attached
	opener *wire.Opener
	meter  meter
	inside bool // the memory limit is held inside: see holdsInside

	ended   chan struct{} // closed when the container is gone
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	limit  sandbox.LimitName
	last   sandbox.Usage
	killed bool // by us

	pause   pause
	layers  map[string]*os.File // of copy-on-write directories, by target
	destroy sync.Mutex          // held by the one who destroys
}

var _ sandbox.Instance = (*instance)(nil)

// start makes a sandbox and returns when its agent waits for a session and
// what it shows of the host is what it was to show.
func (d *Driver) start(ctx context.Context, e *engine, f *facts, spec *sandbox.Spec) (_ sandbox.Instance, err error) {
	mark := wire.NewMark()
	p, err := d.newPlan(spec, mark, f)
	if err != nil {
		return nil, err
	}
	defer p.close()
	i := &instance{id: spec.ID, engine: e, name: containerName(spec.ID), ended: make(chan struct{}),
		inside: holdsInside(d.opts.Runtime) && p.request.HostConfig.Memory > 0}
	if err := e.create(ctx, i.name, p); err != nil {
		return nil, err
	}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	i.stop = stop
	i.running.Go(func() { i.waitGone(watch) })
	defer func() {
		if err != nil {
			_ = i.Destroy(context.WithoutCancel(ctx))
		}
	}()
	if i.stream, err = e.attach(ctx, i.name); err != nil {
		return nil, err
	}
	if err := e.call(ctx, http.MethodPost, "/containers/"+i.name+"/start", nil, nil, nil); err != nil {
		return nil, explain(err)
	}
	pid, container, err := e.first(ctx, i.name)
	if err != nil {
		return nil, err
	}
	here := p.here && isHere(ctx, pid, p.request.Entrypoint)
	if !here && p.looks && !p.asks {
		return nil, errElsewhere
	}
	err = p.insert(ctx, pid)
	if i.layers = p.layers; err != nil {
		return nil, err
	}
	if err := p.connect(ctx, pid); err != nil {
		return nil, err
	}
	if err := p.verify(ctx, pid, i.stream); err != nil {
		return nil, err
	}
	i.meter = newMeter(e, i.name, pid, here || d.opts.Runtime == runtimeGVisor && f.at.local() && inGroup(pid, container))
	if d.opts.Runtime != "" {
		i.meter.asked = p.request.HostConfig.Memory
		if err := i.meter.holds(ctx, &spec.Limits, d.opts.Runtime); err != nil {
			return nil, err
		}
	}
	if here { // a kernel of its own has buffers of its own
		if err := limitSockets(i.meter.group, spec.Limits.Memory); err != nil {
			return nil, err
		}
	}
	i.opener = wire.NewOpener(i.stream, mark)
	i.running.Go(func() { i.watch(watch) })
	return i, nil
}

// create makes the container, giving the engine its image first where it has none. An
// engine whose client has gone makes it all the same. So a caller that does not want it
// waits a moment for it, and can remove it then.
func (e *engine) create(ctx context.Context, name string, p *plan) error {
	make := func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		call, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(createMoment, cancel) })()
		return e.call(call, http.MethodPost, "/containers/create", url.Values{"name": {name}}, &p.request, nil)
	}
	err := make()
	if isStatus(err, http.StatusNotFound) {
		if err := e.importRoot(ctx, p.root); err != nil {
			return err
		}
		err = make()
	}
	return explain(err)
}

// first is the first process's number on the engine's host, and the ID that the engine
// has given to the container.
func (e *engine) first(ctx context.Context, name string) (pid int, id string, err error) {
	var c struct {
		ID    string `json:"Id"`
		State struct {
			Running bool
			Pid     int
		}
	}
	if err := e.call(ctx, http.MethodGet, "/containers/"+name+"/json", nil, nil, &c); err != nil {
		return 0, "", explain(err)
	}
	if !c.State.Running || c.State.Pid <= 0 {
		return 0, "", sandbox.Errorf(sandbox.ErrUnavailable, "start sandbox", "its agent has ended at once")
	}
	return c.State.Pid, c.ID, nil
}

// waitGone closes ended when the container does not exist any more.
func (i *instance) waitGone(ctx context.Context) {
	defer close(i.ended)
	began := time.Now()
	for {
		var answer struct{ StatusCode int }
		err := i.engine.call(ctx, http.MethodPost, "/containers/"+i.name+"/wait", url.Values{"condition": {"removed"}}, nil, &answer)
		if err == nil {
			i.judge(ctx, answer.StatusCode, began)
		}
		if err == nil || isStatus(err, http.StatusNotFound) || ctx.Err() != nil {
			return
		}
		select { // an engine that is restarted
		case <-ctx.Done():
			return
		case <-time.After(watchEvery):
		}
	}
}

// judge finds out whether the memory limit has killed the agent itself, as it
// does when scratch is what fills the memory. The control group is gone then;
// the engine remembers. Of a limit that is held inside it knows nothing; there it
// remembers who else has killed the container, and nothing inside could have.
func (i *instance) judge(ctx context.Context, exit int, began time.Time) {
	i.mu.Lock()
	ours := i.killed || i.limit != ""
	i.mu.Unlock()
	if exit != 128+int(syscall.SIGKILL) || ours {
		return
	}
	over := false
	if i.inside {
		killed, err := i.engine.remembers(ctx, "kill", i.name, began)
		over = err == nil && !killed
	} else {
		over, _ = i.engine.remembers(ctx, "oom", i.name, began)
	}
	if over {
		i.mu.Lock()
		i.limit = sandbox.LimitMemory
		i.mu.Unlock()
	}
}

// remembers says whether the engine has seen an event of that name with a container
// since began.
func (e *engine) remembers(ctx context.Context, event, name string, began time.Time) (bool, error) {
	filters, err := json.Marshal(map[string][]string{"container": {name}, "event": {event}})
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	until := time.Now()
	if !e.at.local() {
		until = until.Add(lastLook / 2) // another machine's clock; it waits until then
	}
	resp, err := e.send(ctx, http.MethodGet, "/events", url.Values{
		"filters": {string(filters)}, "since": {stamp(began.Add(-time.Minute))}, "until": {stamp(until)},
	}, nil, "")
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	var seen struct{ Action, Status string }
	switch err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&seen); err {
	case io.EOF:
		return false, nil
	case nil:
		return seen.Action == event || seen.Status == event, nil
	default:
		return false, err
	}
}

// stamp is a moment as the engine reads it, seconds and nanoseconds.
func stamp(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }

// watch looks for the memory limit having killed something. That ends the
// sandbox, as it does where the whole sandbox is one process.
func (i *instance) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.ended:
			return
		case <-i.stream.broken:
			i.look()
			return
		case <-tick.C:
			if i.look() {
				return
			}
		}
	}
}

// look reports whether a limit has killed something, and ends the sandbox then.
func (i *instance) look() bool {
	if !i.meter.outOfMemory() && !i.stream.outOfMemory() {
		return false
	}
	i.mu.Lock()
	first := i.limit == ""
	i.limit = sandbox.LimitMemory
	i.mu.Unlock()
	if first {
		i.kill()
	}
	return true
}

// kill ends everything inside; the engine removes the container then.
func (i *instance) kill() {
	i.mu.Lock()
	i.killed = true
	i.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), destroyLimit)
	defer cancel()
	_ = i.engine.remove(ctx, i.name)
}

func (i *instance) ID() string { return i.id }

func (i *instance) Dial(ctx context.Context) (net.Conn, error) {
	c, err := i.opener.Open(ctx)
	if err == nil {
		return c, nil
	}
	select {
	case <-i.stream.broken:
		return nil, &sandbox.Error{Op: "sandbox " + i.id, Kind: sandbox.ErrUnavailable, Problem: "its agent has ended" + quoted(i.stream.said()), Cause: err}
	default:
		return nil, err
	}
}

// quoted is what the agent said, made harmless for a terminal.
func quoted(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
	if s == "" {
		return ""
	}
	return ": " + s
}

func (i *instance) Ended() <-chan struct{} { return i.ended }

// Limit names the limit that ended the sandbox, once it has ended.
func (i *instance) Limit() sandbox.LimitName {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.limit
}

// Usage reads the counters; after the end it returns the last ones. A caller that asks
// after a program's end learns a limit that ended it by then. While the container runs
// an engine that tells of none any more is an error: what was is not what is.
func (i *instance) Usage(ctx context.Context) (sandbox.Usage, error) {
	u, err := i.meter.usage(ctx)
	i.awaitEnd(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case err == nil && u.CPU != nil:
		i.last = u
	case i.last.At.IsZero():
	case i.over():
		u, err = i.last, nil
	case err == nil:
		err = &sandbox.Error{Op: "read usage", Kind: sandbox.ErrUnavailable, Problem: "the engine does not tell any more what the container uses"}
	}
	return u, err
}

// over says whether the container has ended.
func (i *instance) over() bool {
	select {
	case <-i.ended:
		return true
	default:
		return false
	}
}

// awaitEnd waits a moment for the end of a container that ends.
func (i *instance) awaitEnd(ctx context.Context) {
	over := i.look()
	select {
	case <-i.stream.broken:
		over = true
	default:
	}
	if over {
		wait, cancel := context.WithTimeout(ctx, lastLook)
		defer cancel()
		select {
		case <-i.ended:
		case <-wait.Done():
		}
	}
}

// endByItself closes the agent's stream and waits a moment for the agent to
// end, everything inside with it, and the engine to remove the container: that
// takes it a third less than to kill it.
func (i *instance) endByItself() error {
	if i.stream == nil || i.standsStill() {
		return errStillThere
	}
	i.stream.Close()
	select {
	case <-i.ended:
		return nil
	case <-time.After(endMoment):
		return errStillThere
	}
}

var errStillThere = errors.New("the container is still there")

// Destroy kills everything inside and waits until the container is gone.
func (i *instance) Destroy(ctx context.Context) error {
	i.destroy.Lock()
	defer i.destroy.Unlock()
	if i.stop == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyLimit)
	defer cancel()
	i.mu.Lock()
	i.killed = true
	i.mu.Unlock()
	err := i.endByItself()
	if err != nil {
		if i.standsStill() {
			i.engine.letGo(ctx, i.name)
		}
		err = i.engine.remove(ctx, i.name)
	}
	if err == nil {
		select {
		case <-i.ended:
		case <-ctx.Done():
			err = sandbox.Errorf(sandbox.ErrUnavailable, "remove container "+i.name, "the engine does not finish removing it")
		}
	}
	i.stop()
	i.running.Wait()
	if i.stream != nil {
		i.stream.Close()
	}
	for _, f := range i.layers {
		f.Close()
	}
	i.meter.close()
	i.stop = nil
	return err
}

// explain turns an engine's words for a container that cannot be made into an
// error with a hint.
func explain(err error) error {
	var said *answerError
	if err == nil || !errors.As(err, &said) {
		return err
	}
	e := &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the engine could not make it: " + said.message}
	switch {
	case said.status == http.StatusConflict:
		e.Kind = sandbox.ErrConflict
	case strings.Contains(said.message, "no space left"):
		e.Problem, e.Hint = "the engine's disk is full", "free some space: docker system df"
	case strings.Contains(said.message, "nr_inodes"), strings.Contains(said.message, "seccomp"):
		e.Kind, e.Hint = sandbox.ErrUnsupported, "use Docker 20.10 or newer"
	}
	return e
}
