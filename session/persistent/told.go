// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
)

// Bounds of what an agent may tell of one cell.
const (
	// maxCellOutput is how many bytes of output and results are handed on where no limit
	// says less.
	maxCellOutput = 64 << 20
	maxResults    = 10_000
	maxForms      = 32 // of one result
	maxErrorName  = 1 << 10
	maxErrorValue = 64 << 10
	maxTraceback  = 1 << 20
	maxReason     = 500
	maxPath       = 4096
	// eventSize is what an event counts that says nothing: there is no end of them otherwise.
	eventSize = 64
)

// told is what an agent has told of one cell so far: it looks at each event, and makes one of
// it that callers can be given. It is for one goroutine.
type told struct {
	seen    int64 // bytes that were told
	left    int64 // bytes that may still be
	begun   bool
	results int
	alive   time.Time      // when Alive was passed on last
	out     *audit.Capture // standard output, and what was shown
	errs    *audit.Capture
}

func newTold(left int64) *told {
	return &told{left: left, out: audit.NewCapture(), errs: audit.NewCapture()}
}

// tooMuch is why an agent is not listened to any longer.
type tooMuch string

func (t tooMuch) Error() string { return "the sandbox told of the cell " + string(t) }

// event is what callers may be given of e, or nil. The error is why the agent is not to be
// listened to any longer.
func (t *told) event(e interpreter.Event) (*interpreter.Event, error) {
	now := time.Now()
	out := &interpreter.Event{Type: e.Type, Time: e.Time}
	if d := now.Sub(e.Time); e.Time.IsZero() || d > 24*time.Hour || d < -24*time.Hour {
		out.Time = now
	}
	size := 0
	switch e.Type {
	case interpreter.Started:
		if t.begun || e.Count < 0 {
			return nil, tooMuch("that it began twice")
		}
		t.begun, out.Count = true, e.Count
	case interpreter.Stdout, interpreter.Stderr:
		if out.Text = strings.ToValidUTF8(e.Text, "\ufffd"); out.Text == "" {
			return nil, t.count(eventSize)
		}
		size = len(out.Text)
	case interpreter.Display:
		if t.results++; t.results > maxResults {
			return nil, tooMuch(fmt.Sprintf("more than %d results", maxResults))
		}
		if out.Result = resultOf(e.Result); out.Result == nil {
			return nil, nil
		}
		for kind, v := range out.Result.Data {
			size += len(kind) + len(v)
		}
	case interpreter.Failure:
		if err := t.count(eventSize); err != nil || e.Error == nil {
			return nil, err
		}
		text := func(s string, n int) string { return sandbox.Clip(strings.ToValidUTF8(s, "\ufffd"), n) }
		out.Error = &interpreter.Error{Name: text(e.Error.Name, maxErrorName), Value: text(e.Error.Value, maxErrorValue), Traceback: text(e.Error.Traceback, maxTraceback)}
		size = len(out.Error.Name) + len(out.Error.Value) + len(out.Error.Traceback)
	case interpreter.Alive:
		if now.Sub(t.alive) < time.Second {
			return nil, t.count(eventSize)
		}
		t.alive = now
	case interpreter.End:
		out.End = endOf(e.End)
	default:
		return nil, t.count(eventSize) // of a newer agent
	}
	t.seen += int64(size)
	if err := t.count(size); err != nil {
		return nil, err
	}
	t.keep(out)
	return out, nil
}

// count takes what was told from what may be.
func (t *told) count(size int) error {
	if t.left -= int64(size); t.left < 0 {
		return tooMuch("more than it may")
	}
	return nil
}

// keep writes down what the record has of an event: output as it is, and of a result its text
// and what other forms it has.
func (t *told) keep(e *interpreter.Event) {
	switch e.Type {
	case interpreter.Stdout:
		_, _ = io.WriteString(t.out, e.Text)
	case interpreter.Stderr:
		_, _ = io.WriteString(t.errs, e.Text)
	case interpreter.Failure:
		fmt.Fprintf(t.errs, "%s: %s\n%s\n", e.Error.Name, e.Error.Value, e.Error.Traceback)
	case interpreter.Display:
		var text string
		_ = json.Unmarshal(e.Result.Data["text/plain"], &text)
		for _, kind := range slices.Sorted(maps.Keys(e.Result.Data)) {
			if kind != "text/plain" {
				text += fmt.Sprintf("[%s, %d bytes]", kind, len(e.Result.Data[kind]))
			}
		}
		_, _ = io.WriteString(t.out, text+"\n")
	}
}

// mimeType is a MIME type in lower case, without parameters.
var mimeType = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z]+/[a-z0-9][a-z0-9.+-]{0,126}$`) })

// resultOf is a result with those of its forms that are what they say; nil is none.
func resultOf(r *interpreter.Result) *interpreter.Result {
	if r == nil {
		return nil
	}
	out := &interpreter.Result{Main: r.Main, Data: map[string]json.RawMessage{}}
	for kind, v := range r.Data {
		if len(out.Data) < maxForms && mimeType().MatchString(kind) && isForm(kind, v) {
			out.Data[kind] = v
		}
	}
	if len(out.Data) == 0 {
		return nil
	}
	return out
}

// isForm says whether v can be what kind says: text, bytes in base64, or JSON.
func isForm(kind string, v json.RawMessage) bool {
	if kind == "application/json" || strings.HasSuffix(kind, "+json") {
		return len(v) > 0 && utf8.Valid(v) // it was part of what was read as JSON
	}
	if len(v) < 2 || v[0] != '"' || !utf8.Valid(v) {
		return false
	}
	if kind != "application/pdf" && (!strings.HasPrefix(kind, "image/") || kind == "image/svg+xml") {
		return true
	}
	// Base64 has no character that JSON writes as anything else.
	_, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, bytes.NewReader(v[1:len(v)-1])))
	return err == nil && !bytes.ContainsAny(v, "\r\n")
}

// endOf is how a cell ended, as far as it can be read.
func endOf(e *interpreter.Ending) *interpreter.Ending {
	if e == nil || !slices.Contains([]string{interpreter.Done, interpreter.Failed, interpreter.TimedOut, interpreter.Interrupted, interpreter.Lost}, e.Status) {
		return &interpreter.Ending{Status: interpreter.Lost, Reason: "how it ended cannot be read"}
	}
	out := &interpreter.Ending{Status: e.Status, Reason: sandbox.Clip(strings.ToValidUTF8(e.Reason, "\ufffd"), maxReason), Cut: max(0, e.Cut), More: e.More}
	for _, f := range e.Files {
		switch {
		case len(out.Files) == interpreter.MaxFiles:
			out.More = true
			return out
		case !absolute(f.Path) || f.Size < 0:
			continue
		case !mimeType().MatchString(f.Type):
			f.Type = ""
		}
		out.Files = append(out.Files, f)
	}
	return out
}
