// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// long is a call that goes on for as long as its caller wants it.
type long struct {
	client *Client
	op     string
	ctx    context.Context
	cancel context.CancelCauseFunc
	resp   *http.Response
	answer *watched

	once sync.Once
}

// errClosed is why a long call ends that its owner closed.
var errClosed = errors.New("it was closed")

// openEnvelope opens a long call whose request is one message.
func (c *Client) openEnvelope(ctx context.Context, op, path string, header http.Header, q any) (*long, error) {
	body, err := wire.AppendJSON(nil, 0, q)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "the request cannot be written", Cause: err}
	}
	header.Set("Content-Type", "application/connect+json")
	return c.open(ctx, op, http.MethodPost, path, header, bytes.NewReader(body))
}

// open begins a long call and waits for its answer to begin.
func (c *Client) open(ctx context.Context, op, method, path string, header http.Header, body io.Reader) (*long, error) {
	select {
	case c.long <- struct{}{}:
	default:
		return nil, &sandbox.Error{
			Op: op, Kind: sandbox.ErrUnavailable, Problem: "the sandbox has as many open streams as it may have",
			Hint: "close some that are no longer needed",
		}
	}
	l := &long{client: c, op: op}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	slow := time.AfterFunc(c.options.CallTimeout, func() { l.cancel(errors.New("it did not begin in time")) })
	var err error
	l.resp, err = c.sendHeader(l.ctx, method, path, header, body)
	if !slow.Stop() && err == nil {
		l.resp.Body.Close()
		err = context.Cause(l.ctx)
	}
	if err != nil {
		err = l.lost(err)
		l.cancel(errClosed)
		<-c.long
		return nil, err
	}
	l.answer = &watched{r: l.resp.Body, idle: c.options.IdleTimeout, hangUp: l.cancel}
	switch l.resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent, http.StatusNotModified: // the latter two: of files that were asked for so
	default:
		defer l.Close()
		return nil, answeredError(op, l.resp)
	}
	return l, nil
}

// Close ends the call.
func (l *long) Close() error {
	l.once.Do(func() {
		l.cancel(errClosed)
		l.resp.Body.Close()
		<-l.client.long
	})
	return nil
}

// lost explains why there is no more.
func (l *long) lost(err error) error {
	if cause := context.Cause(l.ctx); cause != nil {
		err = cause
	}
	if err == errClosed {
		return &sandbox.Error{Op: l.op, Kind: sandbox.ErrUnavailable, Problem: "it was given up", Cause: err}
	}
	return l.client.lost(l.op, err)
}
