// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/interpreter"
)

// jupyterTalk speaks the Jupyter kernel protocol over the sandbox's loopback. A message is
// signed, so that another user's program cannot send one.
type jupyterTalk struct {
	key     []byte
	session string
	speaks  string // its language, as its kernelspec says
	ports   map[string]int
	byAsk   bool // an interrupt is a message, not a signal
	heard   chan heard
	queue   []*message
	closed  chan struct{}
	once    sync.Once

	mu      sync.Mutex // held while something is sent
	peers   map[string]*peer
	cell    string // that runs
	replied string // the status of its reply, before its output has ended
	idle    bool   // its output has ended, before its reply
	listens bool   // output of the kernel has come
	version string
	after   string // what restores variables and directory, before the next cell; start's
}

// channels are the sockets of a kernel that are used.
var channels = map[string]string{"shell": "DEALER", "control": "DEALER", "iopub": "SUB"}

// heard is a message of a kernel.
type heard struct {
	kind, parent string
	content      json.RawMessage
	err          error
}

// newJupyterTalk chooses ports. connection is the file that tells the kernel.
func newJupyterTalk() (t *jupyterTalk, connection string, err error) {
	t = &jupyterTalk{
		key: []byte(rand.Text()), session: rand.Text(), ports: map[string]int{},
		heard: make(chan heard), closed: make(chan struct{}), peers: map[string]*peer{},
	}
	file := map[string]any{
		"transport": "tcp", "ip": "127.0.0.1", "key": string(t.key), "signature_scheme": "hmac-sha256", "kernel_name": "",
	}
	for _, name := range []string{"shell", "control", "iopub", "stdin", "hb"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, "", fmt.Errorf("find a port for the kernel: %w", err)
		}
		defer l.Close()
		t.ports[name] = l.Addr().(*net.TCPAddr).Port
		file[name+"_port"] = t.ports[name]
	}
	b, err := json.Marshal(file)
	return t, string(b), err
}

// launchJupyter starts an installed kernel.
func launchJupyter(u User, p Program, name string) (*kernel, error) {
	spec, err := findSpec(u, name)
	if err != nil {
		return nil, err
	}
	t, connection, err := newJupyterTalk()
	if err != nil {
		return nil, err
	}
	t.byAsk, t.speaks = spec.InterruptMode == "message", spec.Language
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	// Kernels write it anew and change its mode, so it must be the user's own.
	file := path.Join(os.TempDir(), "kernel-"+strings.ToLower(rand.Text())+".json")
	if err := u.As(func() error { return writeNew(file, connection) }); err != nil {
		return nil, err
	}
	defer u.As(func() error { return os.Remove(file) }) // it has been read
	p = spec.program(p, file)
	p.Stdin = null
	return startKernel(u, p, t, func() {})
}

func writeNew(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (t *jupyterTalk) close() {
	t.once.Do(func() {
		close(t.closed)
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, p := range t.peers {
			p.conn.Close()
		}
	})
}

func (t *jupyterTalk) more() bool { return len(t.queue) > 0 }

// next waits for what the kernel says. The first call connects.
func (t *jupyterTalk) next() (*message, error) {
	if len(t.peers) == 0 {
		if err := t.connect(); err != nil {
			return nil, err
		}
	}
	for len(t.queue) == 0 {
		select {
		case h := <-t.heard:
			if h.err != nil {
				return nil, h.err
			}
			if err := t.take(h); err != nil {
				return nil, err
			}
		case <-time.After(askAgain):
			if t.version == "" || !t.listens {
				t.ask("shell", "kernel_info_request", "ready", struct{}{})
			}
		case <-t.closed:
			return nil, io.EOF
		}
	}
	m := t.queue[0]
	t.queue = t.queue[1:]
	return m, nil
}

const (
	dialAgain = 20 * time.Millisecond
	askAgain  = 500 * time.Millisecond
)

// connect waits until the kernel listens.
func (t *jupyterTalk) connect() error {
	for _, name := range []string{"iopub", "shell", "control"} {
		p, err := t.dial(name)
		if err != nil {
			return err
		}
		t.mu.Lock()
		t.peers[name] = p
		t.mu.Unlock()
		go t.listen(p)
	}
	select {
	case <-t.closed: // it may have closed fewer
		for _, p := range t.peers {
			p.conn.Close()
		}
		return io.EOF
	default:
	}
	if err := t.peers["iopub"].send([]byte{1}); err != nil { // all that there is
		return err
	}
	return t.ask("shell", "kernel_info_request", "ready", struct{}{})
}

func (t *jupyterTalk) dial(name string) (*peer, error) {
	for {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(t.ports[name])))
		if err == nil {
			return greet(conn, channels[name])
		}
		select {
		case <-t.closed:
			return nil, io.EOF
		case <-time.After(dialAgain):
		}
	}
}

// listen hands on what comes from one socket.
func (t *jupyterTalk) listen(p *peer) {
	for {
		h := heard{}
		frames, err := p.receive()
		if err == nil {
			h, err = t.read(frames)
		}
		h.err = err
		select {
		case t.heard <- h:
		case <-t.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

var delimiter = "<IDS|MSG>"

// read checks a message and takes it apart.
func (t *jupyterTalk) read(frames [][]byte) (h heard, err error) {
	for len(frames) > 0 && string(frames[0]) != delimiter {
		frames = frames[1:]
	}
	if len(frames) < 6 {
		return h, fmt.Errorf("%w: a message is not whole", errProtocol)
	}
	signature, err := hex.DecodeString(string(frames[1]))
	if err != nil || !hmac.Equal(signature, t.sum(frames[2:6])) {
		return h, fmt.Errorf("%w: a message is not signed with its key", errProtocol)
	}
	var header struct {
		Kind string `json:"msg_type"`
	}
	var parent struct {
		ID string `json:"msg_id"`
	}
	if json.Unmarshal(frames[2], &header) != nil || json.Unmarshal(frames[3], &parent) != nil {
		return h, fmt.Errorf("%w: a message is no JSON", errProtocol)
	}
	return heard{kind: header.Kind, parent: parent.ID, content: frames[5]}, nil
}

func (t *jupyterTalk) sum(parts [][]byte) []byte {
	mac := hmac.New(sha256.New, t.key)
	for _, p := range parts {
		mac.Write(p)
	}
	return mac.Sum(nil)
}

// ask sends a request.
func (t *jupyterTalk) ask(channel, kind, id string, content any) error {
	header, err := json.Marshal(map[string]string{
		"msg_id": id, "session": t.session, "username": "user", "date": time.Now().UTC().Format(time.RFC3339Nano),
		"msg_type": kind, "version": "5.3",
	})
	if err != nil {
		return err
	}
	body, err := json.Marshal(content)
	if err != nil {
		return err
	}
	parts := [][]byte{header, []byte("{}"), []byte("{}"), body}
	signature := hex.EncodeToString(t.sum(parts))
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[channel]
	if p == nil {
		return io.ErrClosedPipe
	}
	return p.send(append([][]byte{[]byte(delimiter), []byte(signature)}, parts...)...)
}

func (t *jupyterTalk) start(c *command) error {
	t.mu.Lock()
	t.cell, t.replied, t.idle = c.ID, "", false
	t.mu.Unlock()
	code, after := strings.ToValidUTF8(c.Code, "\ufffd"), ""
	if len(c.Env) > 0 || c.Dir != "" {
		if !strings.EqualFold(t.speaks, "R") {
			return t.fail(c.ID, errors.New("of Jupyter kernels R's alone have variables and a directory of one cell: set those of the context"))
		}
		before, restore := placeR(c)
		code, after = before+code, restore
	}
	if t.after != "" {
		if err := t.execute("after", t.after, true); err != nil {
			return err
		}
	}
	t.after = after
	return t.execute(c.ID, code, false)
}

// execute has the kernel run code. What comes of it silently is told of no cell.
func (t *jupyterTalk) execute(id, code string, silent bool) error {
	return t.ask("shell", "execute_request", id, map[string]any{
		"code": code, "silent": silent, "store_history": !silent,
		"user_expressions": struct{}{}, "allow_stdin": false,
		"stop_on_error": false, // cells come one at a time, and a kernel that stops may drop the next one
	})
}

// fail ends a cell that the kernel never had.
func (t *jupyterTalk) fail(id string, err error) error {
	content, _ := json.Marshal(map[string]any{"ename": "UnsupportedError", "evalue": err.Error(), "traceback": []string{err.Error()}})
	for _, h := range []heard{
		{kind: "error", parent: id, content: content}, {kind: "execute_reply", parent: id, content: []byte(`{"status":"error"}`)},
		{kind: "status", parent: id, content: []byte(`{"execution_state":"idle"}`)},
	} {
		select {
		case t.heard <- h:
		case <-t.closed:
			return io.EOF
		}
	}
	return nil
}

func (t *jupyterTalk) interrupt(string) bool {
	if t.byAsk {
		go t.ask("control", "interrupt_request", "interrupt", struct{}{})
	}
	return !t.byAsk
}

func (t *jupyterTalk) begun(string) bool   { return true }
func (t *jupyterTalk) interrupted(string)  {}
func (t *jupyterTalk) reseed(string) error { return nil }

// take makes events of a message.
func (t *jupyterTalk) take(h heard) error {
	var c struct {
		State   string                     `json:"execution_state"`
		Status  string                     `json:"status"`
		Name    string                     `json:"name"`
		Text    string                     `json:"text"`
		Data    map[string]json.RawMessage `json:"data"`
		EName   string                     `json:"ename"`
		EValue  string                     `json:"evalue"`
		Trace   []string                   `json:"traceback"`
		Version string                     `json:"implementation_version"`
	}
	switch h.kind {
	case "status", "kernel_info_reply", "stream", "display_data", "execute_result", "error", "execute_reply":
	default:
		return nil
	}
	if err := json.Unmarshal(h.content, &c); err != nil {
		return fmt.Errorf("%w: a message is no JSON", errProtocol)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.greeted(h.kind, c.Version) || h.parent != t.cell || t.cell == "" {
		return nil
	}
	e := &interpreter.Event{}
	switch h.kind {
	case "stream":
		if e.Type, e.Text = interpreter.Stdout, c.Text; c.Name == "stderr" {
			e.Type = interpreter.Stderr
		}
	case "display_data", "execute_result":
		if len(c.Data) == 0 || len(c.Data) > interpreter.MaxForms {
			return nil
		}
		e.Type, e.Result = interpreter.Display, &interpreter.Result{Main: h.kind == "execute_result", Data: c.Data}
	case "error":
		e.Type, e.Error = interpreter.Failure, &interpreter.Error{Name: c.EName, Value: c.EValue, Traceback: plainTrace(c.Trace)}
	case "execute_reply":
		t.replied = c.Status
		return t.ended()
	case "status":
		if t.idle = t.idle || c.State == "idle"; t.idle {
			return t.ended()
		}
		return nil
	default:
		return nil
	}
	t.queue = append(t.queue, &message{id: t.cell, event: e})
	return nil
}

// greeted says whether a message belongs to the beginning: the kernel is ready when it has
// answered, and its output comes.
func (t *jupyterTalk) greeted(kind, version string) bool {
	if t.version != "" && t.listens {
		return false
	}
	switch kind {
	case "kernel_info_reply":
		t.version = version + " "
	case "status":
		t.listens = true
	}
	if t.version != "" && t.listens {
		t.queue = append(t.queue, &message{ready: t.version})
	}
	return true
}

// ended ends the cell when its reply and all of its output have come.
func (t *jupyterTalk) ended() error {
	if t.replied == "" || !t.idle {
		return nil
	}
	end := &interpreter.Ending{Status: interpreter.Done}
	if t.replied != "ok" {
		end.Status = interpreter.Failed
	}
	t.queue = append(t.queue, &message{id: t.cell, event: &interpreter.Event{Type: interpreter.End, End: end}})
	t.cell = ""
	return nil
}

// escapes are what a terminal takes for colours.
var escapes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]") })

const maxTrace = 64 << 10

func plainTrace(lines []string) string {
	text := escapes().ReplaceAllString(strings.Join(lines, "\n"), "")
	return strings.ToValidUTF8(text[:min(len(text), maxTrace)], "")
}
