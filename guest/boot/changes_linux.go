// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/caisson-run/caisson/internal/linux/mounts"
)

// takes notes that dir takes what is changed at target.
func (c *Config) takes(target, dir string, covered map[string]bool) {
	if c.layers == nil {
		c.layers = map[string]layer{}
	}
	c.layers[target] = layer{dir, covered}
}

// cover notes that something is mounted at a place below rootDir.
func (c *Config) cover(at string) {
	if l, found := c.layers["/"]; found {
		l.covered[strings.TrimPrefix(at, rootDir)] = true
	}
}

// write writes what was changed, as a tar stream.
func (l layer) write(dir *os.File, w io.Writer) error {
	if l.covered == nil {
		return mounts.WriteUpper(context.Background(), dir, mounts.TrustedMarks, w)
	}
	return mounts.WriteRoot(context.Background(), dir, mounts.TrustedMarks, func(name string) bool { return l.covered["/"+name] }, w)
}

// reader reads layers, one after the other.
type reader struct {
	layers map[string]layer // by target
	pipe   *io.PipeReader   // of the one that was begun last; nil is none
	ended  chan struct{}    // closed when it is not read any more
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
	l, found := r.layers[target]
	if !found {
		return fmt.Errorf("nothing takes changes at %q", target)
	}
	f, err := os.Open(l.dir)
	if err != nil {
		return err
	}
	in, out := io.Pipe()
	r.pipe, r.ended = in, make(chan struct{})
	go func() {
		defer close(r.ended)
		defer f.Close()
		out.CloseWithError(l.write(f, out))
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
