// SPDX-License-Identifier: Apache-2.0

//go:build linux && !amd64

package probe

func (p *prober) machineCalls() {}
