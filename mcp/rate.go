// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"time"

	"github.com/caisson-run/caisson/policy"
)

// rates are those that a server's entry has for what one of its own entries lists, or
// for anything of it where that is nil. They are counted where those of the policy's
// tools are, so that a gateway that is started again, or a second one, has no more.
func (u *upstream) rates(t *policy.ServerTool) (list []policy.PlanRate) {
	if t != nil && t.Rate.V.N > 0 {
		list = append(list, policy.PlanRate{Tool: u.o.Name + "/" + t.Name, Rate: t.Rate.V, From: u.o.place(t.At)})
	}
	if all := u.o.Server.Calls.Rate; all.V.N > 0 {
		list = append(list, policy.PlanRate{Tool: "server " + u.o.Name, Rate: all.V, From: u.o.place(all.At)})
	}
	return list
}

// count counts a call, or says that it comes too soon.
func (g *Gateway) count(ctx context.Context, rates []policy.PlanRate) *verdict {
	if len(rates) == 0 {
		return nil
	}
	full, wait, err := g.o.Judge.TakeRates(ctx, g.o.Actor, rates)
	switch {
	case err != nil:
		return refusal(err)
	case full >= 0:
		return &verdict{Status: "exhausted", Reason: "it was called " + rates[full].Rate.String() + " already", Rule: rates[full].From,
			Hint: "try again in " + wait.Round(time.Second/10).String()}
	}
	return nil
}
