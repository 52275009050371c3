// SPDX-License-Identifier: Apache-2.0

//go:build linux && !amd64

package probe

func (p *prober) bit32() { p.say("this processor has no int 0x80") }

func (p *prober) x32() { p.say("this architecture has no x32") }
