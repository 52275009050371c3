// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/caisson-run/caisson/guest/wire"
)

// Files sends a request for files as a client of E2B wrote it: the query names
// the path, header may say Range, Content-Type and the like. The answer's status
// is that of a success, its header and body are the guest's word: whoever passes
// them on chooses which. The body fails when nothing of it comes for
// Options.IdleTimeout; the caller closes it.
func (c *Client) Files(ctx context.Context, method string, query url.Values, header http.Header, body io.Reader) (*http.Response, error) {
	const op = "files"
	ctx, cancel := c.transfer(ctx)
	resp, release, err := c.forward(ctx, method, wire.PathFiles+"?"+query.Encode(), header, body)
	if err != nil {
		cancel(nil)
		return nil, c.lost(op, err)
	}
	inner := resp.Body
	done := func() { inner.Close(); release(); cancel(nil) }
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent, http.StatusNotModified:
	default:
		defer done()
		return nil, answeredError(op, resp)
	}
	resp.Body = &forwarded{watched: &watched{r: resp.Body, idle: c.options.IdleTimeout, hangUp: cancel}, done: done}
	return resp, nil
}

func (c *Client) forward(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, func(), error) {
	if err := c.acquire(ctx); err != nil {
		return nil, nil, err
	}
	resp, err := c.sendHeader(ctx, method, path, header, body)
	if err != nil {
		c.release()
		return nil, nil, err
	}
	return resp, c.release, nil
}

// forwarded is the body of an answer that is passed on.
type forwarded struct {
	*watched
	done func()
}

// Close ends the call.
func (f *forwarded) Close() error { f.done(); return nil }
