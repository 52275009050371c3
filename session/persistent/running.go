// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/environment"
)

// running is a sandbox that runs, from its start to its end or its pause.
type running struct {
	run    *session.Invocation // what undoes it
	box    sandbox.Instance
	client *guest.Client // the sandbox's mu guards it, once that has it
	env    *environment.Environment
	grant  *grant
	made   *warmSandbox // the one made ahead that it was; nil without
	caps   sandbox.Capabilities
	before time.Duration // CPU time that it used in its life before this start
	// rebooted says why it began anew with its files, where its memory did not fit.
	rebooted string
	// memory names what its template has in memory. remembers says that what the template
	// starts was done in it, and warm that it began with that memory: its warmup was, too.
	memory    string
	remembers bool
	warm      bool
	used      *atomic.Int64 // ns of CPU time in its whole life, when it was last read
	// gone ends when it is left, and before that with the reason why it has to be.
	gone  context.Context
	leave context.CancelCauseFunc
}

// errLeft is why a sandbox is gone that was ended or paused.
var errLeft = errors.New("the sandbox was ended or paused")

// close ends it, and undoes what it was made of. It is not used any more.
func (in *running) close(ctx context.Context) error {
	in.leave(errLeft)
	if in.client != nil {
		in.client.Close()
	}
	return in.run.Undo.Run(ctx)
}

// start has the level make the sandbox, and waits until its agent answers.
func (in *running) start(ctx context.Context, d sandbox.Driver, kept keptState) (err error) {
	r := in.run
	r.Made.MayHaveRun()
	allowed := session.StartAllowance(&in.caps) + kept.reading()
	ctx, cancel := context.WithTimeout(ctx, allowed)
	defer cancel()
	defer func() { err = session.InTime(err, allowed) }()
	if r.Network != nil {
		if err := session.AwaitRouter(ctx, r.Network, r.Plan.Network); err != nil {
			return err
		}
		go session.WatchNetwork(in.gone, r.Network, in.leave)
	}
	if m := in.made; m != nil { // it runs, and its agent answers
		in.box, in.client = m.box, m.client
		if err := m.Narrow(ctx, r.Plan.Network, r.Credentials); err != nil {
			return err
		}
		if id := in.identity(); !maps.Equal(id.Env, m.told) {
			if err := tell(ctx, in.client, id); err != nil {
				return err
			}
		}
		return in.watchable(ctx)
	}
	make := d.Start
	if kept.dir != "" {
		restorer, ok := d.(sandbox.Restorer)
		if !ok {
			return cannotPause(d.Name())
		}
		make = func(ctx context.Context, spec *sandbox.Spec) (sandbox.Instance, error) {
			return in.restore(ctx, restorer, kept)
		}
	}
	box, err := make(ctx, in.env.Spec)
	if err != nil {
		return err
	}
	in.box = box
	r.Undo.Add(session.WithLimit(in.grant.options.EndLimit, box.Destroy))
	if in.client, err = in.connect(ctx); err != nil {
		return err
	}
	return in.watchable(ctx)
}

// restore has it go on as it was written down, or begin anew with the files that lie beside
// memory that does not fit any more.
func (in *running) restore(ctx context.Context, d sandbox.Restorer, kept keptState) (sandbox.Instance, error) {
	err := kept.memory()
	if err == nil {
		var box sandbox.Instance
		if box, err = d.Restore(ctx, in.env.Spec, kept.dir); err == nil {
			return box, nil
		}
	}
	if !errors.Is(err, sandbox.ErrMisfit) {
		return nil, err
	}
	files, ferr := kept.files()
	if errors.Is(ferr, errNoFiles) {
		return nil, err
	} else if ferr != nil {
		return nil, errors.Join(err, ferr)
	}
	in.rebooted = err.Error()
	return d.Restore(ctx, in.env.Spec, files)
}

// connect begins a session with the agent. Code that took the agent's place
// inside may never answer, and the caller may hold the sandbox's change. So the
// call has a timeout.
func (in *running) connect(ctx context.Context) (*guest.Client, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), session.StartAllowance(&in.caps))
	defer cancel()
	conn, err := in.box.Dial(ctx)
	if err != nil {
		return nil, err
	}
	spec := in.env.Spec
	client, err := guest.NewClient(conn, guest.Options{User: spec.User, Limits: spec.Limits, NewPrivileges: spec.Sudo})
	if err != nil {
		return nil, err
	}
	// It answers now, and knows what it is: also when it is a copy of another.
	if err = tell(ctx, client, in.identity()); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// tell tells the agent about its sandbox. One that is not called what it is to be does not go
// on: it would pass for another.
func tell(ctx context.Context, client *guest.Client, id guest.Resume) error {
	failed, err := client.Resume(ctx, id)
	if why := failed["hostname"]; err == nil && why != "" {
		err = &sandbox.Error{Op: "name sandbox", Kind: sandbox.ErrUnavailable, Problem: "its own host name and machine id could not be set: " + why,
			Hint: "see whether there is memory left for it, and make a new one"}
	}
	return err
}

// identity is what the agent is told about its sandbox. Whose home it is, and
// what they are called, it knows of each user itself.
func (in *running) identity() guest.Resume {
	env := map[string]string{}
	for _, e := range in.env.Exec.Env {
		if name, value, _ := strings.Cut(e, "="); name != "HOME" && name != "USER" && name != "LOGNAME" {
			env[name] = value
		}
	}
	dir := in.env.Dir
	if dir == in.env.Spec.User.Home {
		dir = ""
	}
	return guest.Resume{Hostname: in.env.Spec.Hostname, Env: env, Dir: &dir}
}
