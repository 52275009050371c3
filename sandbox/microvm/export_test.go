// SPDX-License-Identifier: Apache-2.0

package microvm

import "context"

// TryMachine is tryMachine.
var TryMachine = (*Driver).tryMachine

// What tests look at.
var (
	Sum         = sum
	WriteCopies = writeCopies
	NewConsole  = newConsole
	NewQMP      = newQMP
)

// Call is qmp.call, LastLines and Panicked are the console's, OOM says whether the
// agent's word was heard.
func (m *qmp) Call(ctx context.Context, command string) error { return m.call(ctx, command) }
func (c *console) LastLines(n int) string                     { return c.lastLines(n) }
func (c *console) Panicked() bool                             { return c.panicked() }
func (c *console) OOM() <-chan struct{}                       { return c.oom }
