// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package docker

import "context"

// insert has nothing to do: an engine on another system runs in a virtual
// machine.
func (p *plan) insert(context.Context, int) error { return nil }
