// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// readiness is whether sandboxes can be made here, as the last one has shown.
type readiness struct {
	mu     sync.Mutex
	made   bool      // one was, since the last that could not be
	doubt  bool      // the host kept one from being made since then
	trying bool      // one is being made, to see
	next   time.Time // no earlier is the next one
	err    error     // why it could not be
}

// tryAgain is how long after a try the next one is made at the earliest, however many ask.
const tryAgain = 10 * time.Second

// was notes what came of the making of a sandbox. An error that is no fault of the host's
// is for the callers not to pass.
func (r *readiness) was(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.doubt = true
		return
	}
	r.made, r.doubt, r.err = true, false, nil
}

// Readiness is nil when sandboxes can be made here: one really was, and the host has kept
// none from being made since. Else it is why not, and one is made and taken away in the
// background, to see: one at a time, and no more than every 10 s.
func (b *Sandboxes) Readiness() error {
	r := &b.ready
	r.mu.Lock()
	defer r.mu.Unlock()
	if (!r.made || r.doubt) && !r.trying && !b.o.Clock.Now().Before(r.next) && b.background.hold() {
		r.trying = true
		go b.tryOne()
	}
	switch {
	case r.made:
		return nil
	case r.err != nil:
		return r.err
	}
	return &sandbox.Error{Op: "sandboxes", Kind: sandbox.ErrUnavailable, Problem: "none was made yet", Hint: "ask again in a moment"}
}

// tryOne makes a sandbox as a key without a policy gets one, and takes it away.
func (b *Sandboxes) tryOne() {
	defer b.background.work.Done()
	g, err := b.grants.of(&Key{})
	if err == nil {
		var m *warmSandbox
		var r *session.Invocation
		if r, err = b.warmPool.call(warmKind{grant: g, template: BaseTemplate}); err == nil {
			m, err = b.makeAhead(b.background.life, g, r, func(session.Shape) error { return nil })
		}
		if err == nil {
			err = m.Invocation.Undo.Run(context.Background())
		}
	}
	r := &b.ready
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trying, r.doubt, r.next = false, false, b.o.Clock.Now().Add(tryAgain)
	if errors.Is(err, context.Canceled) || r.made && isNoRoom(err) {
		return // everything is being stopped; or those that there are have to be reached
	}
	said := r.err != nil && err != nil && reason(r.err) == reason(err)
	r.made, r.err = err == nil, err
	if err != nil && !said {
		b.o.Notice("no sandbox can be made: " + err.Error())
	}
}
