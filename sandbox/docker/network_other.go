// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package docker

import "context"

func deviceUsable() (why, remedy string) { return "this system has no /dev/net/tun", "" }

// connect has nothing to do: see facts.network.
func (p *plan) connect(context.Context, int) error { return nil }
