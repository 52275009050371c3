// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/caisson-run/caisson/internal/linux/mounts"
)

// reader reads layers, one after the other.
type reader struct {
	layers map[string]string // their directories, by target
	pipe   *io.PipeReader    // of the one that was begun last; nil is none
	ended  chan struct{}     // closed when it is not read any more
}

// next is the next piece of a layer; with a target it is the first of that one. An empty one
// is the end.
func (r *reader) next(target string) ([]byte, error) {
	if target != "" {
		if err := r.begin(target); err != nil {
			return nil, err
		}
	}
	if r.pipe == nil {
		return nil, errors.New("no layer was begun")
	}
	b := make([]byte, MaxPiece)
	n, err := io.ReadFull(r.pipe, b)
	switch {
	case err == io.EOF, err == io.ErrUnexpectedEOF: // and no file of the layer that ended so
		err = nil
	case err != nil:
		r.end()
	}
	return b[:n], err
}

func (r *reader) begin(target string) error {
	r.end()
	dir, found := r.layers[target]
	if !found {
		return fmt.Errorf("nothing takes changes at %q", target)
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	in, out := io.Pipe()
	r.pipe, r.ended = in, make(chan struct{})
	go func() {
		defer close(r.ended)
		defer f.Close()
		out.CloseWithError(mounts.WriteUpper(context.Background(), f, mounts.TrustedMarks, out))
	}()
	return nil
}

// end has the layer that was begun last not be read any more.
func (r *reader) end() {
	if r.pipe != nil {
		r.pipe.Close()
		<-r.ended
		r.pipe = nil
	}
}
