// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"strconv"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"
)

// relay passes the progress of calls on, from servers to who called. A server
// tells of calls by tokens of ours, which say nothing of other callers.
type relay struct {
	mu    sync.Mutex
	last  int64
	under map[string]func(*sdk.ProgressNotificationParams)
}

// maxMessage is how long a word on progress may be.
const maxMessage = 1024

// open makes a token for a call whose caller wants to hear of its progress.
func (r *relay) open(ctx context.Context, caller *sdk.ServerSession, callers any) (token string, done func()) {
	pace := rate.NewLimiter(20, 20)
	highest := 0.0
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under == nil {
		r.under = map[string]func(*sdk.ProgressNotificationParams){}
	}
	r.last++
	token = "caisson-" + strconv.FormatInt(r.last, 36)
	r.under[token] = func(p *sdk.ProgressNotificationParams) {
		if !pace.Allow() || p.Progress < highest { // it only grows
			return
		}
		highest = p.Progress
		_ = caller.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: callers, Progress: p.Progress, Total: p.Total, Message: line(p.Message, maxMessage)})
	}
	return token, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.under, token)
	}
}

func (r *relay) pass(p *sdk.ProgressNotificationParams) {
	token, _ := p.ProgressToken.(string)
	r.mu.Lock()
	tell := r.under[token]
	r.mu.Unlock()
	if tell != nil {
		tell(p)
	}
}
