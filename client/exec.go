// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"github.com/caisson-run/caisson/sandbox"
)

// Exec is a program that is to run in a sandbox: Command, or Shell, a line for sh.
type Exec struct {
	Command     []string          `json:"command,omitempty"`
	Shell       string            `json:"shell,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Cwd         string            `json:"cwd,omitempty"`  // absolute
	User        string            `json:"user,omitempty"` // root, or the sandbox's own
	Stdin       string            `json:"stdin,omitempty"`
	StdinBase64 []byte            `json:"stdin_base64,omitempty"`
	Timeout     Seconds           `json:"timeout,omitempty"`
	Terminal    *Terminal         `json:"terminal,omitempty"`
	// Resumable has a program that people are asked about end with an Error that has
	// an Approval, instead of waiting for them. Its Token as Approval, in the same
	// request, runs it after a yes.
	Resumable bool   `json:"resumable,omitempty"`
	Approval  string `json:"approval,omitempty"`
	Keep      int64  `json:"keep,omitempty"` // bytes of each stream in a Result; 0 is 1 MiB
}

// Terminal is a terminal's size and kind.
type Terminal struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
	Term string `json:"term,omitempty"`
}

// Run is a program, or code, that is to run in a sandbox of its own.
type Run struct {
	Exec
	Code      string   `json:"code,omitempty"`
	Language  string   `json:"language,omitempty"`
	Args      []string `json:"args,omitempty"` // of the code
	Template  string   `json:"template,omitempty"`
	Network   *Network `json:"network,omitempty"`
	Limits    *Limits  `json:"limits,omitempty"`
	Isolation string   `json:"isolation,omitempty"`
	Changes   *Keeping `json:"changes,omitempty"` // nil is what the policy says
}

// Keeping says whether changes in the workspace are kept as a change set. Where Keep is set
// and they cannot be, the run is refused.
type Keeping struct {
	Keep    bool `json:"keep"`
	Ignored bool `json:"ignored,omitempty"` // also what .gitignore files ignore
}

// Result is what came of a program.
type Result struct {
	Status    string           `json:"status"`              // success, error, timeout, resource_exceeded
	ExitCode  *int             `json:"exit_code,omitempty"` // nil when a signal ended it
	Signal    string           `json:"signal,omitempty"`
	Reason    string           `json:"reason,omitempty"`
	Rule      string           `json:"rule,omitempty"`
	Resource  string           `json:"resource,omitempty"` // which limit ended it
	LimitsHit []string         `json:"limits_hit,omitempty"`
	Stdout    []byte           `json:"-"`
	Stderr    []byte           `json:"-"`
	Truncated map[string]int64 `json:"truncated,omitempty"` // bytes of each stream that were cut
	// TruncatedAt is after how many bytes of the stream they are missing.
	TruncatedAt map[string]int64 `json:"truncated_at,omitempty"`
	WallMS      int64            `json:"wall_ms"`
	CPUMS       *int64           `json:"cpu_ms,omitempty"`
	MemoryPeak  *int64           `json:"memory_peak_bytes,omitempty"`
	Findings    []Finding        `json:"findings,omitempty"` // of the policy's rules about code
	Network     *Traffic         `json:"network,omitempty"`
	Changes     *Changes         `json:"changes,omitempty"` // what is kept of what a run changed in its workspace
	Posture     *Posture         `json:"posture,omitempty"` // what held in its sandbox
}

// Finding is something that a program's text says and a rule speaks against.
type Finding struct {
	Kind     string `json:"kind"`
	Name     string `json:"name,omitempty"`
	Language string `json:"language"`
	Text     string `json:"text"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Problem  string `json:"problem"`
	Rule     string `json:"rule,omitempty"`
	Hint     string `json:"hint,omitempty"`
	Action   string `json:"action"`
}

// Traffic is what went through a network.
type Traffic struct {
	Connected int64 `json:"connected"`
	Denied    int64 `json:"denied"`
	Queries   int64 `json:"dns_queries"`
	Sent      int64 `json:"sent"`
	Received  int64 `json:"received"`
}

// UnmarshalJSON reads the streams in either form.
func (r *Result) UnmarshalJSON(b []byte) error {
	type plain Result
	var a struct {
		*plain
		Stdout, Stderr *string
		StdoutBase64   []byte `json:"stdout_base64"`
		StderrBase64   []byte `json:"stderr_base64"`
	}
	a.plain = (*plain)(r)
	if err := json.Unmarshal(b, &a); err != nil {
		return err
	}
	r.Stdout, r.Stderr = a.StdoutBase64, a.StderrBase64
	if a.Stdout != nil {
		r.Stdout = []byte(*a.Stdout)
	}
	if a.Stderr != nil {
		r.Stderr = []byte(*a.Stderr)
	}
	return nil
}

// Exec runs a program in a sandbox and waits for its end. A program that ran is a
// Result, however it ended; what the policy refuses is an Error of kind
// sandbox.ErrDenied.
func (c *Client) Exec(ctx context.Context, id string, e Exec) (*Result, error) {
	r := &Result{}
	if err := c.boxCall(ctx, http.MethodPost, id, "/exec", nil, e, r); err != nil {
		return nil, err
	}
	return r, nil
}

// Run runs a program or code in a sandbox of its own, which is taken away at its
// end.
func (c *Client) Run(ctx context.Context, w Run) (*Result, error) {
	r := &Result{}
	if err := c.call(ctx, http.MethodPost, "/runs", nil, w, r); err != nil {
		return nil, err
	}
	return r, nil
}

// IO is how a program is spoken with while it runs.
type IO struct {
	// Stdin is read until its end; nil is an empty input.
	Stdin io.Reader
	// Stdout and Stderr get what it writes, as it writes it, from one goroutine;
	// nil throws it away. With a terminal all goes to Stdout.
	Stdout, Stderr io.Writer
	// Resize has the terminal's new sizes, Signals the names of signals for it
	// ("SIGTERM"); nil is none.
	Resize  <-chan Terminal
	Signals <-chan string
}

// maxInput is how much input goes in one message, in bytes.
const maxInput = 64 << 10

// Attach runs a program in a sandbox, lets it be spoken with, and waits for its
// end. When ctx ends, the program is ended. Result.Stdout and Stderr are empty.
//
// It returns without waiting for a Read of Stdin that is under way.
func (c *Client) Attach(ctx context.Context, id string, e Exec, io IO) (*Result, error) {
	path, err := box(id, "/exec")
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	conn, resp, err := websocket.Dial(ctx, req.URL.String(), &websocket.DialOptions{HTTPClient: c.socket, HTTPHeader: req.Header, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		if resp != nil && resp.StatusCode >= 300 {
			return nil, answered(resp)
		}
		return nil, c.unreachable(ctx, err)
	}
	a := &attached{conn: conn, io: io, over: make(chan struct{})}
	defer conn.CloseNow()
	defer close(a.over)
	conn.SetReadLimit(4 << 20)
	r, err := a.run(ctx, e)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return r, err
}

// attached is one program that is spoken with.
type attached struct {
	conn *websocket.Conn
	io   IO
	over chan struct{}
	mu   sync.Mutex // one message at a time, in order
}

func (a *attached) run(ctx context.Context, e Exec) (*Result, error) {
	if err := a.say(ctx, e); err != nil {
		return nil, a.lost(err)
	}
	if a.io.Stdin != nil {
		go a.input(ctx)
	} else if err := a.say(ctx, map[string]bool{"eof": true}); err != nil {
		return nil, a.lost(err)
	}
	go a.control(ctx)
	for {
		kind, b, err := a.conn.Read(ctx)
		if err != nil {
			return nil, a.lost(err)
		}
		if kind == websocket.MessageText {
			return a.end(b)
		}
		if len(b) == 0 {
			continue
		}
		to := a.io.Stdout
		if b[0] == 2 {
			to = a.io.Stderr
		}
		if to != nil {
			if _, err := to.Write(b[1:]); err != nil {
				return nil, &sandbox.Error{Op: "exec", Kind: sandbox.ErrUnavailable, Problem: "the output cannot be written", Cause: err}
			}
		}
	}
}

// end reads the last message.
func (a *attached) end(b []byte) (*Result, error) {
	var l struct {
		End     *Result
		Problem *problem
	}
	if err := json.Unmarshal(b, &l); err != nil || l.End == nil && l.Problem == nil {
		return nil, a.lost(errors.New("its last message cannot be read"))
	}
	a.conn.Close(websocket.StatusNormalClosure, "")
	if l.Problem != nil {
		return nil, l.Problem.err()
	}
	return l.End, nil
}

func (a *attached) lost(err error) error {
	return &sandbox.Error{Op: "exec", Kind: sandbox.ErrUnavailable, Problem: "the connection to the daemon broke, and the program was ended", Cause: err}
}

func (a *attached) say(ctx context.Context, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conn.Write(ctx, websocket.MessageText, b)
}

// input sends what Stdin has, until its end. An error ends the input.
func (a *attached) input(ctx context.Context) {
	buf := make([]byte, maxInput)
	for {
		n, err := a.io.Stdin.Read(buf)
		if n > 0 {
			a.mu.Lock()
			werr := a.conn.Write(ctx, websocket.MessageBinary, buf[:n])
			a.mu.Unlock()
			if werr != nil {
				return
			}
		}
		if err != nil {
			a.say(ctx, map[string]bool{"eof": true})
			return
		}
	}
}

// control sends sizes and signals.
func (a *attached) control(ctx context.Context) {
	resize, signals := a.io.Resize, a.io.Signals
	for {
		select {
		case <-a.over:
			return
		case z, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			a.say(ctx, map[string]Terminal{"resize": z})
		case s, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			a.say(ctx, map[string]string{"signal": s})
		}
	}
}
