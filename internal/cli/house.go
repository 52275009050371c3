// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/config"
	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/internal/linux/scope"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/registry"
)

// house opens the state directory, the policies, the record, the keys and the
// sandboxes of a daemon. link is where an approval is answered in a browser.
func (a *app) house(ctx context.Context, f *serveFlags, log *slog.Logger, link func(id string) string) (_ *house, err error) {
	h := &house{}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	o := persistent.SandboxesOptions{
		Policies: map[string]*policy.File{}, Notice: func(s string) { log.Warn(s) },
		// As E2B's base does; a policy file without "user: sudoer" or "user: root" forbids it.
		Templates: map[string]persistent.Template{persistent.BaseTemplate: {Root: true}},
	}
	if o.System, err = config.System(config.SystemPath); err != nil {
		return nil, err
	}
	for _, p := range f.policies {
		name, file, named := strings.Cut(p, "=")
		if !named {
			name, file = "", p
		}
		if file == "" || named && name == "" {
			return nil, &sandbox.Error{Op: "--policy " + sandbox.Quoted(p), Kind: sandbox.ErrInvalid, Problem: "its name or its file is missing", Hint: "write FILE, or NAME=FILE; a variable that it comes from may not be set"}
		}
		if o.Policies[name] != nil {
			return nil, &sandbox.Error{Op: "--policy " + sandbox.Quoted(p), Kind: sandbox.ErrInvalid, Problem: "there are two policies of this name", Hint: "give each file a name of its own: --policy NAME=FILE"}
		}
		if o.Policies[name], err = config.File(file); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{f.certFile, f.keyFile} {
		if name == "" {
			continue
		}
		path, err := files.Absolute(name)
		if err != nil {
			return nil, &sandbox.Error{Op: name, Kind: sandbox.ErrInvalid, Problem: "its directory cannot be found", Hint: "give its absolute path", Cause: err}
		}
		o.Read = append(o.Read, sandbox.HostFile{Path: path})
	}
	h.unwritten = o.System == nil && len(f.policies) == 0
	if o.Profiles, err = profiles(f.profiles); err != nil {
		return nil, err
	}
	if o.Warm, err = warm(f.warm); err != nil {
		return nil, err
	}
	if o.WarmMemory, err = warmMemory(f.warmMemory); err != nil {
		return nil, err
	}
	_, _ = scope.Enter(ctx) // before the levels are made; see open
	if f.sandboxesIn != "" {
		if _, err := scope.Join(ctx, f.sandboxesIn); err != nil { // sandboxes are written down at a stop, then
			log.Warn(err.Error(), "hint", sandbox.Hint(err))
		}
	}
	dir, err := store.Open(a.place())
	if err != nil {
		return nil, err
	}
	h.closers, h.state = append(h.closers, dir.Close), dir.Path()
	if note := dir.Note(); note != "" {
		a.note("%s", note)
	}
	reserve, err := dir.Reserve()
	if err != nil {
		return nil, err
	}
	h.closers = append(h.closers, reserve.Close)
	record, err := audit.Open(ctx, audit.Options{Dir: dir.Path(), Reserve: reserve})
	if err != nil {
		return nil, err
	}
	h.closers = append(h.closers, record.Close)
	if f.keep > 0 {
		h.closers = append(h.closers, retain(record, f.keep, log))
	}
	db, err := registry.Open(ctx, dir.Path())
	if err != nil {
		return nil, err
	}
	db.SetReserve(reserve)
	h.closers = append(h.closers, db.Close)
	if h.keys, err = persistent.OpenKeys(db, os.Getenv("CAISSON_API_KEY")); err != nil {
		return nil, err
	}
	o.Left = cgroup.OwnLeft
	o.Ready, o.Grace, o.Leave = f.pool, f.grace, f.keepRunning
	h.approvals = question.New(question.Options{Dir: dir.Path(), Journal: record, Link: link, Complain: func(err error) { log.Warn(err.Error()) }})
	o.Approvals = h.approvals
	h.closers = append(h.closers, h.approvals.Close)
	o.Drivers, o.Journal, o.State, o.Registry = a.drivers(), record, session.DirState(dir), db
	if h.boxes, err = persistent.OpenSandboxes(ctx, o); err != nil {
		return nil, err
	}
	h.closers = append(h.closers, func() error { return h.endSandboxes(ctx) })
	return h, nil
}
