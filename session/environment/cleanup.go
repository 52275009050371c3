// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"sync"
)

// Cleanup is what has to be undone, last made first undone. Each step runs once,
// whether the call ended well, failed, panicked or was cancelled. The zero value is
// empty. It may be used from many goroutines.
type Cleanup struct {
	mu    sync.Mutex
	steps []func(context.Context) error
}

// Add adds a step.
func (c *Cleanup) Add(step func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = append(c.steps, step)
}

// Close adds a step that closes f.
func (c *Cleanup) Close(f interface{ Close() error }) {
	c.Add(func(context.Context) error { return f.Close() })
}

// Mark is how many steps there are, for Back.
func (c *Cleanup) Mark() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.steps)
}

// Run undoes everything. Its context is never cancelled with the call's: what
// was made has to go above all after Ctrl-C.
func (c *Cleanup) Run(ctx context.Context) error { return c.Back(ctx, 0) }

// Back undoes what was added since Mark returned mark.
func (c *Cleanup) Back(ctx context.Context, mark int) error {
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
