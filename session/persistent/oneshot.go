// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"cmp"
	"context"
	"errors"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// Run carries out a call of a key in a sandbox of its own, made of a template (""
// is base) for this call alone and taken away at its end; see [Session.Do] for what
// the Result and an error are. It counts for the key's quota while it runs. Its
// default limits are those of a run, not of a persistent sandbox.
//
// call names no host path and no image: those are the operator's to name.
func (b *Sandboxes) Run(ctx context.Context, k *Key, template string, call *session.Call, io session.IO) (*sandbox.Result, error) {
	if call.Workspace != nil || len(call.Mounts)+len(call.Toolchains)+len(call.Collect) > 0 || call.Rootfs != "" || call.File != "" ||
		call.Image != "" || call.Entrypoint != nil || call.UpstreamCA != "" || len(call.Secrets) > 0 {
		return nil, &sandbox.Error{Op: "run", Kind: sandbox.ErrInvalid, Problem: "it names something of the host, or an image", Hint: "name a template"}
	}
	made, err := b.madeOf(k, cmp.Or(template, BaseTemplate))
	if err != nil {
		return nil, err
	}
	g, err := b.grants.oneShot(k)
	if err != nil {
		return nil, err
	}
	call.Actor, call.Account, call.Operator = k.Actor(), k.ID, false
	if !call.Fetches { // its program is ours
		call.Image, call.OwnImage = made.image, made.own
	}
	leave, err := b.queue.enter(ctx, k.ID)
	if err != nil {
		return nil, err
	}
	defer leave()
	r := &session.Invocation{Session: g.session, Call: call, IO: io, ID: session.NewID()}
	l, err := b.reserve(g, &registry.Sandbox{ID: registry.NewID("i", 20), Owner: k.ID}, r)
	if err != nil {
		return nil, err
	}
	defer b.inventory.remove(l.managed)
	defer l.unlock()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(b.background.life, func() { end(errors.New("caisson is being stopped")) })()
	return r.Whole(ctx)
}
