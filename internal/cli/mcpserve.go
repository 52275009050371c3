// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"net/http"
	"runtime"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/internal/config"
	"github.com/caisson-run/caisson/internal/linux/scope"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/mcp"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/registry"
)

// withMCP serves MCP at /mcp, and all else by rest. Who looked at the request's
// host calls it.
func withMCP(frontend *mcp.Handler, rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", frontend)
	mux.Handle("/", rest)
	return mux
}

// mcpFrontend is MCP for the keys of a daemon. What its requests hold counts with those
// of the other frontends.
func mcpFrontend(h *house, memory *api.Memory) *mcp.Handler {
	return mcp.NewHandler(mcp.HandlerOptions{Authenticate: h.keys.Authenticate, HostIsKnown: true, Version: version,
		Bounded: func(k *persistent.Key, w http.ResponseWriter, r *http.Request, next http.Handler) {
			memory.Serve(k.ID, w, r, next)
		},
		Tools: func(k *persistent.Key) mcp.Toolbox { return mcp.KeyTools(h.boxes, k) }})
}

// serveMCP serves one client on standard input and output.
func (a *app) serveMCP(ctx context.Context, policyFile string) (err error) {
	defer runtime.KeepAlive(room())
	h, key, err := a.privateHouse(ctx, policyFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	return mcp.Serve(ctx, mcp.KeyTools(h.boxes, key), version, a.in, a.out.file)
}

// privateHouse is what one client's sandboxes stand on, which are that client's
// alone and end with it.
func (a *app) privateHouse(ctx context.Context, policyFile string) (_ *house, _ *persistent.Key, err error) {
	h := &house{}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	o := persistent.SandboxesOptions{Private: true, Policies: map[string]*policy.File{}, Notice: func(s string) { a.note("%s", s) }}
	if o.System, err = config.System(config.SystemPath); err != nil {
		return nil, nil, err
	}
	if policyFile != "" {
		if o.Policies[""], err = config.File(policyFile); err != nil {
			return nil, nil, err
		}
	}
	_, _ = scope.Enter(ctx) // before the levels are made; see open
	dir, err := store.Open(a.place())
	if err != nil {
		return nil, nil, err
	}
	h.closers = append(h.closers, dir.Close)
	if note := dir.Note(); note != "" {
		a.note("%s", note)
	}
	// Who is registered here is gone with this process, and with it the registry.
	id := registry.NewID("mcp_", 20)
	place, err := dir.Run(id)
	if err != nil {
		return nil, nil, err
	}
	h.closers = append(h.closers, place.Remove)
	db, err := registry.Open(ctx, place.Path())
	if err != nil {
		return nil, nil, err
	}
	h.closers = append(h.closers, db.Close)
	if o.Journal, err = openRecord(ctx, dir); err != nil {
		return nil, nil, err
	}
	o.Drivers, o.State, o.Registry = a.drivers(), session.DirState(dir), db
	o.Approvals = question.New(question.Options{Dir: dir.Path(), Journal: o.Journal, Complain: func(err error) { a.note("%v", err) }})
	h.closers = append(h.closers, o.Approvals.Close)
	if h.boxes, err = persistent.OpenSandboxes(ctx, o); err != nil {
		return nil, nil, err
	}
	h.closers = append(h.closers, func() error { return h.endSandboxes(ctx) })
	return h, &persistent.Key{ID: id, Name: actor()}, nil
}
