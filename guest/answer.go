// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"io"

	"github.com/caisson-run/caisson/sandbox"
)

const (
	// maxAnswer is the longest JSON answer, in bytes.
	maxAnswer = 4 << 20
	// maxObjects is how many objects it may have. The longest listings of an
	// honest agent have some 42 000 with those of the files' metadata. Without
	// this bound "{}," would be enough for each of a million entries, which take
	// a hundred times as much memory as that.
	maxObjects = 45_000
)

// decode reads a JSON answer within its bounds.
func (c *Client) decode(op string, r io.Reader, a any) error {
	b, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	switch {
	case err != nil:
		return c.lost(op, err)
	case len(b) > maxAnswer:
		return sandbox.Errorf(sandbox.ErrUnavailable, op, "the guest agent's answer is longer than %d bytes", maxAnswer)
	case objects(b) > maxObjects:
		return sandbox.Errorf(sandbox.ErrUnavailable, op, "the guest agent's answer has more than %d objects", maxObjects)
	}
	if err := json.Unmarshal(b, a); err != nil {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrUnavailable, Problem: "the guest agent's answer is no JSON", Cause: err}
	}
	return nil
}

// objects counts the objects in a JSON text. In what is no JSON it counts
// something, which is all the same: nothing is made of that.
func objects(b []byte) (n int) {
	text := false
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '"':
			text = !text
		case text && b[i] == '\\':
			i++
		case !text && b[i] == '{':
			n++
		}
	}
	return n
}
