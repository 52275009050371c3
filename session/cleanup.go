// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"sync"
)

// cleanup is what has to be undone, last made first undone. It runs once,
// whether the call ended well, failed, panicked or was cancelled.
type cleanup struct {
	mu    sync.Mutex
	steps []func(context.Context) error
}

func (c *cleanup) add(step func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = append(c.steps, step)
}

// mark is how much there is to undo, for back.
func (c *cleanup) mark() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.steps)
}

// run undoes everything. Its context is never cancelled with the call's: what
// was made has to go above all when somebody pressed Ctrl-C.
func (c *cleanup) run(ctx context.Context) error { return c.back(ctx, 0) }

// back undoes what was added since mark.
func (c *cleanup) back(ctx context.Context, mark int) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for {
		c.mu.Lock()
		n := len(c.steps)
		if n <= mark {
			c.mu.Unlock()
			return errors.Join(errs...)
		}
		step := c.steps[n-1]
		c.steps = c.steps[:n-1]
		c.mu.Unlock()
		if err := step(ctx); err != nil {
			errs = append(errs, err)
		}
	}
}
