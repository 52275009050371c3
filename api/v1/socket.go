// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/caisson-run/caisson/api"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// A program that is spoken with while it runs, over a WebSocket. The first message
// is an Exec, as text. From then on binary messages of the client are the program's
// input, and text ones a control each; binary messages of the server are output,
// with the stream's number in front (1 and 2), and the last one, as text, is how it
// ended.

// control is what a client says beside input; one of its fields.
type control struct {
	Resize *Terminal `json:"resize,omitempty"` // the terminal's new size
	Signal string    `json:"signal,omitempty"` // SIGTERM, …
	EOF    bool      `json:"eof,omitempty"`    // there is no more input
}

// last is the server's last word; one of its fields.
type last struct {
	End     *Result  `json:"end,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
}

const (
	// maxInput bounds one message of input, in bytes.
	maxInput = 1 << 20
	// maxControl bounds a message of the client's that is none, in bytes.
	maxControl = 4 << 10
	// firstTimeout is how long the first message may take.
	firstTimeout = 30 * time.Second
)

// sockets registers the programs that are spoken with.
func (s *Server) sockets() {
	s.mux.HandleFunc("GET /v1/sandboxes/{id}/exec", s.socket)
	s.api.OpenAPI().AddOperation(&huma.Operation{
		Method: "GET", Path: "/v1/sandboxes/{id}/exec", OperationID: "execSocket", Summary: "Run a program and speak with it while it runs: a WebSocket",
		Description: "docs/api.md says what its messages are.",
		Parameters:  []*huma.Param{{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}}},
		Responses: map[string]*huma.Response{
			"101": {Description: "The WebSocket"},
			"426": {Description: "The request is for no WebSocket"},
		},
	})
}

func (s *Server) socket(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		writeProblem(w, &Problem{Status: http.StatusUpgradeRequired, Detail: "this is a WebSocket", Hint: "POST runs a program without one"})
		return
	}
	c := callOf(r.Context())
	id := r.PathValue("id")
	if _, err := s.o.Sandboxes.Handle(c.key, id).Get(r.Context()); err != nil {
		writeProblem(w, err)
		return
	}
	// A page of another origin is refused, whatever it has.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // it has answered
	}
	conn.SetReadLimit(maxBody)
	t := &talk{conn: conn, taken: s.taken, held: c.held, resize: make(chan sandbox.WindowSize, 1), signals: make(chan syscall.Signal, 8), alive: aliveEvery}
	defer t.listening.Wait()
	defer conn.CloseNow()
	t.send(t.carry(r.Context(), s.in(c.key, id)))
	conn.Close(websocket.StatusNormalClosure, "")
}

// talk is one program and who speaks with it.
type talk struct {
	conn    *websocket.Conn
	taken   func(first []byte) (*Exec, error)
	held    *api.Held
	resize  chan sandbox.WindowSize
	signals chan syscall.Signal

	alive     time.Duration // how often it is seen whether the client is there
	listening sync.WaitGroup
	writing   atomic.Int32 // messages on their way to the client
	wrote     atomic.Bool  // since it was last looked at
}

// carry reads what is to run, runs it, and says how it ended.
func (t *talk) carry(ctx context.Context, do carrier) last {
	e, err := t.first(ctx)
	if err != nil {
		return last{Problem: asProblem(err)}
	}
	c, err := e.call()
	if err != nil {
		return last{Problem: asProblem(err)}
	}
	c.Signals, c.WritesInput = t.signals, true
	if c.TTY != nil {
		c.TTY.Resize = t.resize
	}
	t.conn.SetReadLimit(maxInput)
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	in, input := io.Pipe()
	defer in.Close()
	t.listening.Go(func() {
		defer gone()
		input.CloseWithError(t.listen(input))
	})
	t.listening.Go(func() { t.keepAlive(ctx, gone) })
	var stdin io.Reader = in
	if first := e.stdin(); first != nil {
		stdin = io.MultiReader(first, in)
	}
	res, err := do(ctx, c, session.IO{Stdin: stdin, Stdout: numbered{t, 1}, Stderr: numbered{t, 2}})
	if err == nil {
		err = denied(res)
	}
	if err != nil {
		return last{Problem: asProblem(err)}
	}
	return last{End: result(res)}
}

// first reads the first message.
func (t *talk) first(ctx context.Context) (*Exec, error) {
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	kind, r, err := t.conn.Reader(ctx)
	if err != nil || kind != websocket.MessageText {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "exec", "the first message is to say what runs, as text")
	}
	b, err := io.ReadAll(api.LimitJSON(t.held.Body(io.NopCloser(r))))
	var many *api.TooMany
	switch {
	case errors.Is(err, sandbox.ErrExhausted), errors.As(err, &many):
		return nil, err
	case err != nil:
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "exec", "the first message cannot be read")
	}
	return t.taken(b)
}

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more behind it")
	}
	return nil
}

// listen passes on what the client says, until it goes or says something that
// cannot be meant. Who sends more input than the program reads is not listened to
// until it has read it; input goes through as it comes.
func (t *talk) listen(input *io.PipeWriter) error {
	buf := make([]byte, 32<<10)
	for {
		kind, r, err := t.conn.Reader(context.Background()) // until the connection is closed
		if err != nil {
			return io.ErrUnexpectedEOF
		}
		if kind == websocket.MessageBinary {
			_, err = io.CopyBuffer(input, struct{ io.Reader }{r}, buf)
			if errors.Is(err, io.ErrClosedPipe) { // the program closed its input; it runs on
				_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, buf)
			}
			if err != nil {
				return io.ErrUnexpectedEOF
			}
			continue
		}
		b, err := io.ReadAll(io.LimitReader(r, maxControl+1))
		if err != nil || len(b) > maxControl {
			return io.ErrUnexpectedEOF
		}
		var c control
		if err := strict(b, &c); err != nil {
			return err
		}
		if c.EOF {
			input.Close()
		}
		if z := c.Resize; z != nil && z.Rows > 0 && z.Cols > 0 {
			select { // the latest counts
			case <-t.resize:
			default:
			}
			t.resize <- sandbox.WindowSize{Rows: z.Rows, Cols: z.Cols}
		}
		if n := signalNumber(c.Signal); n != 0 {
			select {
			case t.signals <- n:
			default: // it has not taken those before
			}
		}
	}
}

// keepAlive keeps proxies from giving the connection up. It sees that the
// connection is broken also while the program does not read its input.
func (t *talk) keepAlive(ctx context.Context, gone func()) {
	tick := time.NewTicker(t.alive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if t.wrote.Swap(false) || t.writing.Load() > 0 {
			continue
		}
		one, cancel := context.WithTimeout(ctx, t.alive)
		if broken(t.conn.Ping(one)) {
			gone()
		}
		cancel()
	}
}

// broken says whether a connection is, by what came of a ping. It is answered when
// the socket is read, which is not now if the program does not read its input; and it
// waits its turn, for 5 s whatever it was given, while output goes to a client that
// takes its time. Only where the ping itself cannot be written for so long, since the
// client has read nothing for a while, the library closes the connection.
func broken(ping error) bool {
	return ping != nil && !errors.Is(ping, context.DeadlineExceeded) && !errors.Is(ping, context.Canceled)
}

func (t *talk) send(l last) {
	b, err := json.Marshal(l)
	if err == nil {
		t.write(websocket.MessageText, b)
	}
}

func (t *talk) write(kind websocket.MessageType, b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), api.TransferTimeout)
	defer cancel()
	t.writing.Add(1)
	defer t.writing.Add(-1)
	t.wrote.Store(true)
	return t.conn.Write(ctx, kind, b)
}

// numbered writes a stream's output.
type numbered struct {
	t      *talk
	stream byte
}

// Write implements io.Writer.
func (n numbered) Write(p []byte) (int, error) {
	if err := n.t.write(websocket.MessageBinary, append([]byte{n.stream}, p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// signalNumber is a signal's number on Linux, where programs run; 0 for any but
// those that a client may send.
func signalNumber(name string) syscall.Signal {
	names := []string{1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 9: "SIGKILL", 10: "SIGUSR1", 12: "SIGUSR2", 15: "SIGTERM", 18: "SIGCONT", 19: "SIGSTOP", 20: "SIGTSTP", 28: "SIGWINCH"}
	if name == "" {
		return 0
	}
	return syscall.Signal(max(slices.Index(names, name), 0))
}
