// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/caisson-run/caisson/interpreter"
)

// cellAlive is how long a cell may say nothing before its client is told that it is alive.
const cellAlive = 5 * time.Second

// lines writes what a cell tells as E2B's interpreter does: one JSON object a line, none of
// them empty, and in ASCII, since clients decode each piece that arrives by itself. It is safe
// for concurrent use.
type lines struct {
	w       http.ResponseWriter
	control *http.ResponseController

	mu     sync.Mutex
	begun  bool // the status is written
	failed bool // an error was told
	ended  bool
	last   time.Time
	err    error // sticky
}

// event tells an event of a cell.
func (l *lines) event(e interpreter.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Type {
	case interpreter.Started:
		return l.write(map[string]any{"type": "number_of_executions", "execution_count": e.Count})
	case interpreter.Stdout, interpreter.Stderr:
		return l.write(map[string]any{"type": e.Type, "text": e.Text, "timestamp": e.Time.UTC().Format(time.RFC3339Nano)})
	case interpreter.Display:
		return l.write(resultLine(e.Result))
	case interpreter.Failure:
		return l.fail(e.Error.Name, e.Error.Value, e.Error.Traceback)
	case interpreter.Alive:
		return l.write(keepalive)
	case interpreter.End:
		return l.end(e.End)
	}
	return nil
}

var keepalive = map[string]any{"type": "keepalive"}

func (l *lines) fail(name, value, traceback string) error {
	l.failed = true
	return l.write(map[string]any{"type": "error", "name": name, "value": value, "traceback": traceback})
}

// end tells how the cell ended, where that is not what its error says already.
func (l *lines) end(e *interpreter.Ending) error {
	if e.Cut > 0 {
		l.write(map[string]any{"type": "stderr", "text": fmt.Sprintf("[%d bytes of output were cut: that is more than its limit]\n", e.Cut), "timestamp": time.Now().UTC().Format(time.RFC3339Nano)})
	}
	name := map[string]string{interpreter.Failed: "Error", interpreter.TimedOut: "TimeoutError", interpreter.Interrupted: "KeyboardInterrupt", interpreter.Lost: "ContextLost"}[e.Status]
	if name != "" && (!l.failed || e.Status == interpreter.Lost) {
		l.fail(name, e.Reason, e.Reason)
	}
	l.ended = true
	return l.write(map[string]any{"type": "end_of_execution"})
}

// failure tells why there is no more of the cell, and ends the answer.
func (l *lines) failure(name, value, traceback string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.fail(name, value, traceback) // who does not read misses it
	l.ended = true
	_ = l.write(map[string]any{"type": "end_of_execution"})
}

// write writes one line, for who holds mu.
func (l *lines) write(v any) error {
	if l.err != nil {
		return l.err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if !l.begun {
		l.begun = true
		h := l.w.Header()
		h.Set("Content-Type", "application/x-ndjson")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // nginx would hold lines back
		l.w.WriteHeader(http.StatusOK)
	}
	l.last = time.Now()
	if _, l.err = l.w.Write(append(ascii(b), '\n')); l.err == nil {
		l.err = l.control.Flush()
	}
	return l.err
}

// ascii escapes what JSON has beyond it.
func ascii(b []byte) []byte {
	n := bytes.IndexFunc(b, func(r rune) bool { return r >= utf8.RuneSelf })
	if n < 0 {
		return b
	}
	out := append(make([]byte, 0, len(b)+len(b)/2), b[:n]...)
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		n += size
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
	}
	return out
}

// keepAlive tells of a cell that says nothing that it is alive, until stop. It begins with the
// first line: what goes wrong before has a status.
func (l *lines) keepAlive(every time.Duration) (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		t := time.NewTimer(every)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
			}
			l.mu.Lock()
			silent := time.Since(l.last)
			if l.begun && silent >= every && !l.ended {
				_ = l.write(keepalive)
				silent = 0
			}
			l.mu.Unlock()
			t.Reset(max(every-silent, time.Second))
		}
	}()
	return func() { close(done); <-over }
}

// resultForms are the keys of a result's forms.
var resultForms = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg",
	"application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript",
	interpreter.DataType: "data", interpreter.ChartType: "chart",
}

// resultLine is a result as clients know it. Forms that have no key of their own are extra.
func resultLine(r *interpreter.Result) map[string]any {
	line, extra := map[string]any{"type": "result", "is_main_result": r.Main}, map[string]any{}
	for kind, v := range r.Data {
		key, known := resultForms[kind]
		switch {
		case !known:
			extra[kind] = v
		case key == "text":
			line[key] = unquoted(v)
		default:
			line[key] = v
		}
	}
	line["extra"] = extra
	return line
}

// unquoted is a text without the quotes that all of it stands in, as Python shows strings.
func unquoted(v json.RawMessage) any {
	var s string
	if json.Unmarshal(v, &s) != nil {
		return v
	}
	if n := len(s); n >= 2 && s[0] == s[n-1] && (s[0] == '\'' || s[0] == '"') {
		s = s[1 : n-1]
	}
	return s
}
