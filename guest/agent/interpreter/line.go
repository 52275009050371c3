// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/caisson-run/caisson/interpreter"
)

// message is what a kernel says: that it is ready, or an event of a cell.
type message struct {
	ready string // its version
	id    string // of the cell
	event *interpreter.Event
}

// errProtocol is why a kernel is ended that says what none may say.
var errProtocol = errors.New("its kernel broke the protocol")

// parseLine reads a line of a kernel. The kernel runs hostile code: what is taken is
// bounded, and of an event that no cell of a kernel may send nothing is.
func parseLine(line []byte) (*message, error) {
	var head struct {
		ID    string `json:"id"`
		Ready *struct {
			Version string `json:"version"`
		} `json:"ready"`
	}
	// Ours begin with the id, and may be long behind it.
	if rest, ok := bytes.CutPrefix(line, []byte(`{"id":"`)); ok {
		id, event, ok := bytes.Cut(rest, []byte(`",`))
		if ok && len(id) < 32 && !bytes.ContainsAny(id, `"\`) {
			return parseEvent(string(id), append([]byte("{"), event...))
		}
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, fmt.Errorf("%w: a line is no JSON", errProtocol)
	}
	if head.Ready != nil {
		return &message{ready: head.Ready.Version + " "}, nil
	}
	return parseEvent(head.ID, line)
}

func parseEvent(id string, line []byte) (*message, error) {
	e, err := interpreter.ParseEvent(line)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errProtocol, err)
	}
	switch e.Type {
	case interpreter.Stdout, interpreter.Stderr, interpreter.Display, interpreter.Failure:
	case interpreter.End:
		if s := e.End.Status; s != interpreter.Done && s != interpreter.Failed && s != interpreter.Interrupted {
			return nil, fmt.Errorf("%w: a cell ends with %q", errProtocol, s)
		}
	default:
		return nil, fmt.Errorf("%w: it sends %q", errProtocol, string(e.Type))
	}
	return &message{id: id, event: e}, nil
}

// readLine reads one line of at most max bytes, without its end.
func readLine(r *bufio.Reader, max int) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(long)+len(part) > max {
			return nil, fmt.Errorf("%w: a line is longer than it may be", errProtocol)
		}
		if err == nil && long == nil {
			return bytes.TrimSuffix(part, []byte("\n")), nil
		}
		long = append(long, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(long, []byte("\n")), nil
		case err == io.EOF && len(long) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}
