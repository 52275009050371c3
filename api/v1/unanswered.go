// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"net/http"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/session/persistent"
)

// made notes sandboxes that were made for a call and have no name: only its answer tells
// which they are. It is an error when the caller has gone by now.
func made(ctx context.Context, all ...*persistent.Sandbox) error {
	c := callOf(ctx)
	for _, b := range all {
		c.made = append(c.made, b.ID)
	}
	c.left = ctx.Err() != nil
	return context.Cause(ctx)
}

// settle ends what a call has made whose answer was not taken. It would run until its
// time is over and count for the key's quota, and no client would know of it.
func (s *Server) settle(ctx context.Context, c *call, w http.ResponseWriter) {
	if len(c.made) == 0 || !c.left && api.Taken(w) {
		return
	}
	for _, id := range c.made {
		_ = s.o.Sandboxes.Withdraw(ctx, id) // else its time ends it
	}
}
