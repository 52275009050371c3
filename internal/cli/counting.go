// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"sync"
	"time"

	"github.com/caisson-run/caisson/session/registry"
)

// counting opens the store of rates when something is to be counted: most runs
// count nothing.
type counting struct {
	dir string

	mu sync.Mutex
	db *registry.DB
}

// Take is registry.DB's.
func (c *counting) Take(ctx context.Context, now registry.Instant, rates []registry.Rate) (int, time.Duration, error) {
	c.mu.Lock()
	if c.db == nil {
		var err error
		if c.db, err = registry.Open(ctx, c.dir); err != nil {
			c.mu.Unlock()
			return -1, 0, err
		}
	}
	c.mu.Unlock()
	return c.db.Take(ctx, now, rates)
}

func (c *counting) close() error {
	if c.db == nil {
		return nil
	}
	return c.db.Close()
}
