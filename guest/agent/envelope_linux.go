// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/caisson-run/caisson/guest/wire"
)

// readEnvelope reads one envelope of a streaming call's request: flags, which
// must be none, the length, and JSON. io.EOF comes only between two.
func readEnvelope(r io.Reader, v any) error {
	var h [5]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(h[1:])
	switch {
	case h[0] != 0:
		return errors.New("compressed envelopes are not taken")
	case n > maxRequest:
		return fmt.Errorf("the envelope has %d bytes, more than %d", n, maxRequest)
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return err
	}
	if len(b) < int(n) {
		return io.ErrUnexpectedEOF
	}
	return json.Unmarshal(b, v)
}

// envelopeWriter writes the messages of a streaming call.
type envelopeWriter struct{ *writer }

func newEnvelopeWriter(w http.ResponseWriter) *envelopeWriter {
	return &envelopeWriter{newWriter(w, "application/connect+json")}
}

// event writes {"event": e}.
func (o *envelopeWriter) event(e any) error {
	return o.message(struct {
		Event any `json:"event"`
	}{e})
}

// message writes a message.
func (o *envelopeWriter) message(v any) error { return o.write(0, v) }

// end writes the envelope that ends the stream, with an error unless it is nil.
func (o *envelopeWriter) end(e *connectError) error {
	return o.write(2, struct {
		Error *connectError `json:"error,omitempty"`
	}{e})
}

func (o *envelopeWriter) write(flags byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.send(wire.AppendFrame(nil, wire.Kind(flags), b))
}
