// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/caisson-run/caisson/internal/linux/mounts"
	"github.com/caisson-run/caisson/sandbox"
)

// Options say how the driver works; the zero value is right.
type Options struct {
	// Host is the engine's address, unix:///path or tcp://host:port. Empty
	// takes DOCKER_HOST, else the first of the usual sockets that answers.
	Host string
	// Runtime is the engine's name of an OCI runtime to use instead of its
	// default: "runsc", "kata". With one that keeps files in a kernel of its
	// own nothing of the host can be mounted, because it cannot be seen what
	// was; the root must be an image then.
	Runtime string
}

// Driver runs sandboxes as containers of an engine. It is safe for use from
// many goroutines.
type Driver struct {
	opts Options

	// amend, in tests, takes a protection out.
	amend func(*plan)

	mu     sync.Mutex
	engine *engine // set by find
	known  *facts  // of engine
	since  time.Time
	deaf   bool // the engine did not answer a sweep: it is not asked again

	variants map[string]*Driver // by runtime, made when they are asked for
}

// factsFor is how long an engine's facts are taken to be true.
const factsFor = time.Minute

// New makes the driver. It does nothing until it is used.
func New(opts Options) *Driver { return &Driver{opts: opts} }

var (
	_ sandbox.Driver = (*Driver)(nil)
	_ sandbox.Varied = (*Driver)(nil)
)

// Name is "docker", or "docker:runsc" with that runtime.
func (d *Driver) Name() string {
	if d.opts.Runtime != "" {
		return Name + ":" + d.opts.Runtime
	}
	return Name
}

// Variant is the driver that has the same engine use another OCI runtime.
func (d *Driver) Variant(name string) sandbox.Driver {
	if d.opts.Runtime != "" || !isRuntime(name) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.variants[name]
	if v == nil {
		if d.variants == nil {
			d.variants = map[string]*Driver{}
		}
		o := d.opts
		o.Runtime = name
		v = &Driver{opts: o, amend: d.amend}
		d.variants[name] = v
	}
	return v
}

// find returns the engine and what it says of itself.
func (d *Driver) find(ctx context.Context) (*engine, *facts, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known != nil && time.Since(d.since) < factsFor {
		return d.engine, d.known, nil
	}
	if d.engine == nil {
		a, err := findEngine(d.opts.Host)
		if err != nil {
			return nil, nil, err
		}
		if d.engine, err = newEngine(a); err != nil {
			return nil, nil, err
		}
	}
	f, err := d.engine.facts(ctx)
	if err != nil {
		return nil, nil, err
	}
	d.known, d.since = f, time.Now()
	return d.engine, f, nil
}

// probeLimit bounds Probe: an engine that hangs is as good as none.
const probeLimit = 3 * time.Second

// Probe asks the engine what it can do, which takes some milliseconds; where
// none listens, none. It starts nothing.
func (d *Driver) Probe(ctx context.Context) (sandbox.Capabilities, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	_, f, err := d.find(ctx)
	if err != nil {
		return sandbox.Capabilities{Unusable: err.Error(), Remedy: sandbox.Hint(err), Limits: (&facts{}).limits(d.opts.Runtime)}, nil
	}
	c := sandbox.Capabilities{
		Engine: f.name(), Notes: f.notes(), Limits: f.limits(d.opts.Runtime),
		Terminal: true, Masks: d.opts.Runtime == "", ReadWrite: f.namespaces() && d.opts.Runtime == "", LiveFiles: d.opts.Runtime == "", CopyOnWrite: f.inserts(os.Geteuid(), d.opts.Runtime), Changes: f.inserts(os.Geteuid(), d.opts.Runtime) && f.pauses(), ScratchInMemory: true, Images: true, Pause: f.pauses(),
	}
	c.NoSurvival = sandbox.Clause{Enforcement: sandbox.Off, Detail: noSurvival}
	c.Wire, c.NoNetwork = f.network(os.Geteuid(), d.opts.Runtime)
	if c.Network = c.Wire != ""; !c.Network {
		c.Notes = append(c.Notes, "No network with an allow-list: "+c.NoNetwork.Detail+" ("+c.NoNetwork.Remedy+").")
	}
	c.Unusable, c.Remedy = f.unusable(runtime.GOARCH, d.opts.Runtime)
	return c, nil
}

// Start makes a living sandbox with the guest agent as its first process.
func (d *Driver) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
	e, f, err := d.find(ctx)
	if err != nil {
		return nil, err
	}
	if why, remedy := f.unusable(runtime.GOARCH, d.opts.Runtime); why != "" {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: why, Hint: remedy}
	}
	return d.start(ctx, e, f, spec)
}

// Adopt has nothing to adopt: an agent without its owner's stream ends, and its
// container with it.
func (d *Driver) Adopt(context.Context, *sandbox.Spec) (*sandbox.Adopted, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "adopt sandbox", "%s", noSurvival)
}

// noSurvival is why.
const noSurvival = "a container ends with the stream to its agent, which is its owner's"

// sweepLimit bounds Sweep: a caller that wants another level does not wait for
// an engine that hangs, and not once for each sandbox.
const sweepLimit = 2 * time.Second

var _ sandbox.Sweeper = (*Driver)(nil)

// Sweep removes the container of the sandbox with the given id and state directory, if
// there is one. The name is not enough: a copy of a state directory has the same IDs.
// Where no engine listens there is nothing to remove.
func (d *Driver) Sweep(ctx context.Context, id, stateDir string) error {
	if sandbox.CheckID(id) != nil {
		return nil // none of ours
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deaf {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	a, err := findEngine(d.opts.Host)
	if err != nil || a.local() && !listens(a.addr) {
		return nil
	}
	e, err := newEngine(a)
	if err != nil {
		return err
	}
	defer e.close()
	ours, err := e.isOf(ctx, containerName(id), filepath.Dir(stateDir))
	if ours {
		e.letGo(ctx, containerName(id))
		err = e.remove(ctx, containerName(id))
	}
	d.deaf = err != nil && ctx.Err() != nil
	return err
}

// isOf says whether there is a container of that name whose sandbox's state directory was
// made in dir.
func (e *engine) isOf(ctx context.Context, name, dir string) (bool, error) {
	var c struct {
		Config struct{ Labels map[string]string }
	}
	err := e.call(ctx, http.MethodGet, "/containers/"+name+"/json", nil, nil, &c)
	if isStatus(err, http.StatusNotFound) {
		return false, nil
	}
	return err == nil && c.Config.Labels[labelState] == mounts.DirectoryMark(dir), err
}

// remove kills and removes a container and waits until it is gone. One that
// does not exist is removed. An engine says no while it is removing it already,
// as it was told at the beginning, or while it ends.
func (e *engine) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, destroyLimit)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := e.call(ctx, http.MethodDelete, "/containers/"+name, url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
		var said *answerError
		switch {
		case err == nil, isStatus(err, http.StatusNotFound):
			return nil
		case !errors.As(err, &said):
			return err
		}
		select {
		case <-ctx.Done():
			return &sandbox.Error{Op: "remove container " + name, Kind: sandbox.ErrUnavailable, Problem: "the engine does not finish removing it", Cause: err}
		case <-time.After(pause):
		}
	}
}
