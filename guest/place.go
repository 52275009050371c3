// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Place puts a tar stream in place below root, an absolute directory inside, with the
// rights of the client's user: directories, files and symbolic links with their modes; a
// character device 0:0 removes what has its name; a file with the record
// [wire.PlaceMode] changes the mode alone. What is there is replaced, and no link below
// root is followed. ctx bounds it; without a deadline it has as much time as any transfer.
func (c *Client) Place(ctx context.Context, root string, files io.Reader) error {
	op := "put files in place in " + printable(root)
	if err := wire.CheckAbsolute(root); err != nil {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: err.Error()}
	}
	ctx, cancel := c.transfer(ctx)
	defer cancel(nil)
	source := &failing{r: files}
	resp, release, err := c.roundTrip(ctx, http.MethodPost, wire.PathPlace+"?"+url.Values{"root": {root}}.Encode(), source, "application/x-tar")
	if err != nil {
		if e := source.failure(); e != nil {
			return &sandbox.Error{Op: op, Kind: sandbox.ErrUnavailable, Problem: "what is to be put there cannot be read", Cause: e}
		}
		return c.lost(op, err)
	}
	defer release()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return answeredError(op, resp)
	}
	var done struct{}
	return c.decode(op, resp.Body, &done)
}
