// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"encoding/json"
	"time"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/registry"
)

// Rates counts how often something was done; *registry.DB does.
type Rates interface {
	// Take counts one time against each of rates, or against none when one of them
	// is used up: full is its index then, and -1 otherwise; see registry.DB.Take.
	Take(ctx context.Context, now registry.Instant, rates []registry.Rate) (full int, wait time.Duration, err error)
}

// ChargeRates counts a call that v is about against its rates, for its account. A rate
// that cannot be counted refuses the call. A call that is asked about counts when it is
// asked, so that people are not asked too often; made again by actor with the token of
// that question, which is good for that call alone, it does not count again.
func (s *Session) ChargeRates(ctx context.Context, account string, v *policy.Verdict, actor, token string) error {
	rates := v.Plan.Rates
	if v.Decision == policy.Ask && token != "" && len(rates) > 0 {
		if open, err := s.o.Approvals.Open(ctx, actor, token); err != nil || open {
			return err
		}
	}
	full, wait, err := s.TakeRates(ctx, account, rates)
	if err != nil || full < 0 {
		return err
	}
	// Up, so that who waits so long does not come too soon.
	unit := time.Millisecond
	if wait > 10*time.Second {
		unit = time.Second
	}
	return rates[full].Exceeded((wait + unit - 1).Truncate(unit).String()).Err()
}

// TakeRates counts one time against each of rates, for whose account it is, or against
// none: where one is used up, full is its index and wait how long it stays so; full is
// -1 otherwise. All processes of a store share what was counted.
func (s *Session) TakeRates(ctx context.Context, account string, rates []policy.PlanRate) (full int, wait time.Duration, err error) {
	if len(rates) == 0 {
		return -1, 0, nil
	}
	if s.o.Rates == nil {
		return -1, 0, &sandbox.Error{Op: "rate " + rates[0].Rate.String(), Kind: sandbox.ErrUnsupported, Problem: "nothing counts calls here", Hint: "drop the rate, or ask another way", Rule: rates[0].From}
	}
	now := s.o.Boot
	if now == nil {
		now = sinceBoot
	}
	list := make([]registry.Rate, len(rates))
	for i, r := range rates {
		// JSON, so that no name can be written that is two others.
		bucket, err := json.Marshal([]any{account, r.Tool, r.Rate.N, r.Rate.Per})
		if err != nil {
			return -1, 0, err
		}
		list[i] = registry.Rate{Bucket: string(bucket), Max: r.Rate.N, Per: r.Rate.Per}
	}
	return s.o.Rates.Take(ctx, now(), list)
}
