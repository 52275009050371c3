// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package egress

import (
	"context"
	"os"
	"time"

	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Router is a router's process; there is none here.
type Router struct{}

// Start says that there is no router for this system.
func Start(Options) (*Router, error) {
	return nil, sandbox.Errorf(sandbox.ErrUnsupported, "start router", "networks with an allow-list need Linux")
}

// NIC is nothing here.
func (r *Router) NIC() *os.File { return nil }

// Far is nothing here.
func (r *Router) Far() *os.File { return nil }

// Started never is.
func (r *Router) Started() error { return nil }

// Ready never is.
func (r *Router) Ready(context.Context) error { return nil }

// Foresee does nothing here.
func (r *Router) Foresee(time.Duration) {}

// Change does nothing here.
func (r *Router) Change(context.Context, wire.Rules) error { return nil }

// Live is none here.
func (r *Router) Live(context.Context) (int, error) { return 0, nil }

// Stop does nothing here.
func (r *Router) Stop() Report { return Report{} }

// Close does nothing here.
func (r *Router) Close() Report { return Report{} }

// PID is no process.
func (r *Router) PID() int { return 0 }
