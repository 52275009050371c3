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

// run undoes everything. Its context is never cancelled with the call's: what
// was made has to go above all when somebody pressed Ctrl-C.
func (c *cleanup) run(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for {
		c.mu.Lock()
		n := len(c.steps)
		if n == 0 {
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
