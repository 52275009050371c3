// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/caisson-run/caisson/session"
)

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// Output is a piece of what a program wrote.
type Output struct {
	Stream string  `json:"stream" enum:"stdout,stderr"`
	Text   *string `json:"text,omitempty" doc:"Where it is UTF-8"`
	Base64 []byte  `json:"base64,omitempty" doc:"Where it is not"`
}

// aliveEvery is how often something is written to a stream on which nothing
// happens, so that what lies between does not give it up.
const aliveEvery = 15 * time.Second

// stream carries a program out and tells what it writes, as server-sent events.
func (s *Server) stream(ctx huma.Context, e *Exec, c *session.Call, do carrier) {
	r, w := humago.Unwrap(ctx)
	out := &events{w: w, control: http.NewResponseController(w), left: map[string][]byte{}}
	defer out.keepAlive()()
	res, err := do(r.Context(), c, session.IO{Stdin: e.stdin(), Stdout: streamOf{out, "stdout"}, Stderr: streamOf{out, "stderr"}})
	if err == nil {
		err = denied(res)
	}
	out.end(func() {
		switch {
		case err != nil && !out.begun:
			writeProblem(w, err)
		case err != nil:
			out.event("problem", asProblem(err))
		default:
			out.event("end", result(res))
		}
	})
}

// events is an answer of server-sent events. Its header is written with the first,
// so that what goes wrong before has a status.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController

	mu    sync.Mutex
	begun bool
	over  bool
	left  map[string][]byte // by stream: the beginning of a character that has not come whole
}

// send writes an event, or a comment where name is empty.
func (o *events) send(name string, v any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return io.ErrClosedPipe
	}
	return o.event(name, v)
}

// event is send for who holds mu.
func (o *events) event(name string, v any) error {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "text/event-stream")
		o.w.Header().Set("Cache-Control", "no-store")
		o.w.WriteHeader(http.StatusOK)
	}
	text := []byte(":\n\n")
	if name != "" {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		text = append(append([]byte("event: "+name+"\ndata: "), b...), "\n\n"...)
	}
	if _, err := o.w.Write(text); err != nil {
		return err
	}
	return o.control.Flush()
}

// output tells a piece of a stream. A character that it cuts apart waits for the next one.
func (o *events) output(stream string, p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return io.ErrClosedPipe
	}
	p = append(o.left[stream], p...)
	whole := session.WholeRunes(p)
	if !utf8.Valid(whole) {
		whole = p
	}
	o.left[stream] = bytes.Clone(p[len(whole):])
	return o.piece(stream, whole)
}

// piece is the event of a piece, for who holds mu.
func (o *events) piece(stream string, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	v := Output{Stream: stream}
	v.Text, v.Base64 = textOrBytes(p)
	return o.event("output", v)
}

// end stops all writing, and last writes what comes last. A write that is under
// way to a client that does not read is given up.
func (o *events) end(last func()) {
	given := time.AfterFunc(lastTimeout, func() { o.control.SetWriteDeadline(time.Now()) })
	o.mu.Lock()
	given.Stop()
	o.over = true
	for _, stream := range []string{"stdout", "stderr"} {
		_ = o.piece(stream, o.left[stream]) // who does not read misses what comes last, too
	}
	last()
	o.mu.Unlock()
}

// lastTimeout is how long the last bytes of a program may take to its caller once
// it has ended.
const lastTimeout = 5 * time.Second

// keepAlive writes a comment now and then, until stop.
func (o *events) keepAlive() (stop func()) {
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(aliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				o.send("", nil)
			}
		}
	}()
	return func() { close(over) }
}

// streamOf tells what goes to one stream.
type streamOf struct {
	to   *events
	name string
}

// Write implements io.Writer.
func (s streamOf) Write(p []byte) (int, error) {
	if err := s.to.output(s.name, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
