// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A server tells of a call while it is under way: its progress, words for a log. The
// library has that heard by a goroutine of its own, which the call's answer overtakes on
// a busy machine; and what comes after the answer belongs to no call, and is not passed
// on.

// order has answers wait for what a server has told before them.
type order struct {
	mu      sync.Mutex
	unheard int
	heard   chan struct{} // closed when all is; nil while no answer waits
}

// hearing is how long an answer waits at most: what is told may be too odd to be heard,
// and its reader may be slow to take it.
const hearing = time.Second

// tells says whether a method is one that tells of calls.
func tells(method string) bool {
	return method == "notifications/message" || method == "notifications/progress"
}

func (o *order) told() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unheard++
}

func (o *order) done() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unheard = max(0, o.unheard-1); o.unheard == 0 && o.heard != nil {
		close(o.heard)
		o.heard = nil
	}
}

// wait returns when all is heard that was told. It is called by one goroutine.
func (o *order) wait(ctx context.Context) {
	o.mu.Lock()
	if o.unheard == 0 {
		o.mu.Unlock()
		return
	}
	o.heard = make(chan struct{})
	heard := o.heard
	o.mu.Unlock()
	late := time.NewTimer(hearing)
	defer late.Stop()
	select {
	case <-heard:
	case <-ctx.Done():
	case <-late.C:
		o.mu.Lock()
		defer o.mu.Unlock()
		o.unheard, o.heard = 0, nil // none of these keeps the next one waiting
	}
}

// hears is a receiver that notes what it has heard.
func (o *order) hears(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if tells(method) {
			defer o.done()
		}
		return next(ctx, method, req)
	}
}

// ordered is a way to a server whose answers wait.
type ordered struct {
	sdk.Transport
	order *order
}

// Connect connects.
func (t ordered) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &orderedConn{Connection: c, order: t.order}, nil
}

type orderedConn struct {
	sdk.Connection
	order *order
}

// Read reads the next message.
func (c *orderedConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	switch m := m.(type) {
	case *jsonrpc.Request:
		if !m.IsCall() && tells(m.Method) {
			c.order.told()
		}
	case *jsonrpc.Response:
		c.order.wait(ctx)
	}
	return m, err
}
