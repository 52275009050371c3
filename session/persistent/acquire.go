// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// Acquire returns the key's sandbox with a name: one that runs, whose time is
// extended; else one that is paused, which is resumed; else a new one, made as c
// says. However many ask at once, there is one. made says that it is new; what c
// says counts only then.
func (b *Sandboxes) Acquire(ctx context.Context, k *Key, name string, c Create) (s *Sandbox, made bool, err error) {
	if name == "" || len(name) > maxName {
		return nil, false, sandbox.Errorf(sandbox.ErrInvalid, "acquire", "a name has 1 to %d bytes", maxName)
	}
	for {
		l := b.inventory.named(k.ID, name)
		if l == nil {
			s, err := (&creation{b: b, key: k, name: name, want: c}).run(ctx)
			if err == errNameTaken { // by another call, in this moment
				continue
			}
			return s, err == nil, err
		}
		if s, err := l.acquired(ctx, k, c.Timeout); s != nil || err != nil {
			return s, false, err
		}
	}
}

// acquired waits for a sandbox that is being made or changed; both are nil when
// it came to nothing, or is gone.
func (l *managed) acquired(ctx context.Context, k *Key, timeout time.Duration) (*Sandbox, error) {
	held, err := l.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer held.unlock()
	if s := l.state(); s != registry.Running && s != registry.Paused {
		return nil, nil
	}
	if _, err := held.connect(ctx, k, timeout); err != nil {
		return nil, err
	}
	return l.record(), nil
}
