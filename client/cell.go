// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
)

// Cell is code that is to run in a context of a sandbox, which keeps its state.
type Cell struct {
	Code     string            `json:"code"`
	Language string            `json:"language,omitempty"` // empty is python
	Context  string            `json:"context,omitempty"`  // its ID; empty is the language's default one
	Env      map[string]string `json:"env,omitempty"`      // while it runs
	Cwd      string            `json:"cwd,omitempty"`      // absolute; while it runs
	Timeout  Seconds           `json:"timeout,omitempty"`  // after which it is interrupted; the state is kept
	// Resumable and Approval are those of an Exec.
	Resumable bool   `json:"resumable,omitempty"`
	Approval  string `json:"approval,omitempty"`
}

// Context says what context is wanted; the zero value is one of Python in the home directory.
type Context struct {
	ID       string            `json:"id,omitempty"` // empty has one made up
	Language string            `json:"language,omitempty"`
	Cwd      string            `json:"cwd,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
}

// contextAnswer is a context as the API has it.
type contextAnswer struct {
	interpreter.Context
	Cwd string `json:"cwd"`
}

func (a contextAnswer) context() interpreter.Context {
	a.Context.Dir = a.Cwd
	return a.Context
}

// CreateContext makes a context in a sandbox.
func (c *Client) CreateContext(ctx context.Context, id string, w Context) (*interpreter.Context, error) {
	var a contextAnswer
	if err := c.boxCall(ctx, http.MethodPost, id, "/contexts", nil, w, &a); err != nil {
		return nil, err
	}
	made := a.context()
	return &made, nil
}

// Contexts lists the contexts of a sandbox.
func (c *Client) Contexts(ctx context.Context, id string) ([]interpreter.Context, error) {
	var a struct{ Contexts []contextAnswer }
	err := c.boxCall(ctx, http.MethodGet, id, "/contexts", nil, nil, &a)
	var out []interpreter.Context
	for _, one := range a.Contexts {
		out = append(out, one.context())
	}
	return out, err
}

// inContext is the path of a context. What is no ID makes no other path.
func inContext(name string) (string, error) {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") != "" || strings.Trim(name, ".") == "" {
		return "", sandbox.Errorf(sandbox.ErrNotFound, "context "+strconv.Quote(name), "that is no context's ID")
	}
	return "/contexts/" + name, nil
}

// RestartContext gives a context a fresh kernel, which knows nothing of what was.
func (c *Client) RestartContext(ctx context.Context, id, name string) error {
	rest, err := inContext(name)
	if err != nil {
		return err
	}
	return c.boxCall(ctx, http.MethodPost, id, rest+"/restart", nil, nil, nil)
}

// InterruptContext interrupts the cell that a context runs, if it does.
func (c *Client) InterruptContext(ctx context.Context, id, name string) error {
	rest, err := inContext(name)
	if err != nil {
		return err
	}
	return c.boxCall(ctx, http.MethodPost, id, rest+"/interrupt", nil, nil, nil)
}

// RemoveContext ends a context, with the cell that it runs.
func (c *Client) RemoveContext(ctx context.Context, id, name string) error {
	rest, err := inContext(name)
	if err != nil {
		return err
	}
	return c.boxCall(ctx, http.MethodDelete, id, rest, nil, nil, nil)
}

// RunCell runs a cell and waits for its end; on, where it is not nil, gets its events as they
// come. A cell that ran is an Execution, however it ended; what the policy refuses is an Error of
// kind sandbox.ErrDenied. When ctx ends, or on fails, which is returned, the cell is interrupted.
func (c *Client) RunCell(ctx context.Context, id string, cell Cell, on func(interpreter.Event) error) (*interpreter.Execution, error) {
	path, err := box(id, "/cells")
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(cell)
	if err != nil {
		return nil, &sandbox.Error{Op: "client", Kind: sandbox.ErrInvalid, Problem: "the request cannot be written", Cause: err}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := c.request(ctx, http.MethodPost, path, nil, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.send(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	x, r := &interpreter.Execution{}, bufio.NewReader(resp.Body)
	for x.Status == "" {
		e, err := readEvent(r)
		if err != nil {
			if ctx.Err() != nil {
				return x, context.Cause(ctx)
			}
			if _, told := err.(*Error); told {
				return x, err
			}
			return x, &sandbox.Error{Op: "caisson at " + c.base.Host, Kind: sandbox.ErrUnavailable, Problem: "the connection broke while a cell ran", Cause: err}
		}
		x.Add(*e)
		if on != nil {
			if err := on(*e); err != nil {
				return x, err
			}
		}
	}
	return x, nil
}

// readEvent reads the next event of a cell. The error is an *Error where the daemon told one.
func readEvent(r *bufio.Reader) (*interpreter.Event, error) {
	name, data := "", []byte(nil)
	for {
		line, err := readLine(r)
		if err != nil {
			return nil, err
		}
		switch field, value, _ := strings.Cut(string(line), ": "); {
		case field == "event":
			name = value
		case field == "data":
			data = line[len("data: "):]
		case field != "" || name == "": // a comment, or the end of one
		case name == "problem":
			var p problem
			if err := json.Unmarshal(data, &p); err != nil {
				return nil, err
			}
			return nil, p.err()
		default:
			e := &interpreter.Event{}
			if err := json.Unmarshal(data, e); err != nil {
				return nil, err
			}
			e.Type = interpreter.EventType(name)
			if e.Type == interpreter.Display && e.Result == nil || e.Type == interpreter.End && (e.End == nil || e.End.Status == "") {
				return nil, io.ErrUnexpectedEOF
			}
			return e, nil
		}
	}
}

// readLine reads a line, without its end, of up to maxAnswer bytes.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxAnswer {
			return nil, bufio.ErrTooLong
		}
		if err != bufio.ErrBufferFull {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}
