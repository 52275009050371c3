// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Many servers from before 2026-07-28 say nothing to a request that comes before the
// handshake, not even that they do not know it: after probeTimeout they are asked for
// the handshake. One that was only slow to start, and knows no handshake or has
// discovered itself by then, refuses that: it is started again, and waited for.

// probeTimeout is how long a server may be silent when it is asked what it is.
const probeTimeout = 10 * time.Second

var (
	errSilent = errors.New("it says nothing")
	errHasty  = errors.New("it was not waited for")
)

// probe asks a server what it is.
type probe struct {
	timeout time.Duration
	silent  bool // it said nothing
}

// asks is a sender that waits for the answer no longer than that. The library falls back
// to the handshake over any error.
func (p *probe) asks(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if method != "server/discover" {
			return next(ctx, method, req)
		}
		ctx, stop := context.WithTimeoutCause(ctx, p.timeout, errSilent)
		defer stop()
		res, err := next(ctx, method, req)
		p.silent = err != nil && context.Cause(ctx) == errSilent
		return res, err
	}
}

// hasty says whether an error of the handshake is the answer of one that was only slow.
func (p *probe) hasty(err error) bool {
	var answer *jsonrpc.Error
	return p.silent && errors.As(err, &answer)
}
