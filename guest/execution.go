// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
)

// Execution is a cell that runs or waits for its turn. What is read from it was written
// by untrusted code. The caller must call Close.
type Execution struct {
	stream  *long
	lines   *bufio.Reader
	started bool
	ended   bool
}

// Execute runs a cell. It returns when the cell runs or waits behind others of its
// context; at most 64 wait. When ctx ends before the cell, or the session is lost, the
// cell is interrupted and the context keeps its state.
//
// A context that there is not is ErrNotFound; without Context the default one of the
// language is taken, and made where there is none, as in [Client.CreateContext].
func (c *Client) Execute(ctx context.Context, cell interpreter.Cell) (*Execution, error) {
	const op = "run cell"
	if cell.Context == "" || cell.Language != "" {
		cell.Language = interpreter.Language(cell.Language)
	}
	if err := cell.Check(); err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: err.Error()}
	}
	body, err := json.Marshal(wire.CellRequest{Cell: cell, Limits: c.options.limits()})
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "the request cannot be written", Cause: err}
	}
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {wire.EventsType}}
	l, err := c.open(ctx, op, http.MethodPost, wire.PathCell, header, bytes.NewReader(body))
	if err != nil {
		return nil, withKernelHint(err, cell.Language)
	}
	return &Execution{stream: l, lines: bufio.NewReaderSize(l.answer, 64<<10)}, nil
}

// Next waits for the next event. Behind End it returns io.EOF. It is called from one
// goroutine.
func (x *Execution) Next() (interpreter.Event, error) {
	if x.ended {
		return interpreter.Event{}, io.EOF
	}
	line, err := x.line()
	if err != nil {
		return interpreter.Event{}, x.stream.lost(unexpected(err))
	}
	e, err := interpreter.ParseEvent(line)
	if err == nil {
		err = x.follows(e)
	}
	if err != nil {
		return interpreter.Event{}, x.stream.lost(err)
	}
	return *e, nil
}

// follows holds the order of events: one start, and one end, which may come without.
func (x *Execution) follows(e *interpreter.Event) error {
	switch {
	case e.Type == interpreter.Alive:
	case e.Type == interpreter.End:
		x.ended = true
	case e.Type == interpreter.Started && !x.started:
		x.started = true
	case e.Type == interpreter.Started || !x.started:
		return errors.New("the events of a cell come in a wrong order")
	}
	return nil
}

// line reads one line within the bound.
func (x *Execution) line() ([]byte, error) {
	var long []byte
	for {
		part, err := x.lines.ReadSlice('\n')
		if len(long)+len(part) > interpreter.MaxLine {
			return nil, errors.New("an event is longer than it may be")
		}
		if err == nil && long == nil {
			return part, nil
		}
		long = append(long, part...)
		if err != bufio.ErrBufferFull {
			return long, err
		}
	}
}

// Close ends the execution: a cell that has not ended is interrupted. A call of Next that
// waits returns an error.
func (x *Execution) Close() error { return x.stream.Close() }
