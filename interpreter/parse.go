// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
)

const (
	// MaxForms is how many forms one result has at most.
	MaxForms = 64

	// What is not a result is small: without this bound an object of a few bytes would
	// take a hundred times as much memory.
	maxPlain   = 4 << 20
	maxObjects = 4 * MaxFiles
)

// ParseEvent reads an event that came from a sandbox. What it allocates is bounded by a
// few times the length of line, which is at most MaxLine.
func ParseEvent(line []byte) (*Event, error) {
	if len(line) > MaxLine {
		return nil, errors.New("an event is longer than it may be")
	}
	var head struct {
		Type   EventType       `json:"type"`
		Time   time.Time       `json:"time"`
		Count  int             `json:"count"`
		Text   string          `json:"text"`
		Result json.RawMessage `json:"result"`
		Error  *Error          `json:"error"`
		End    json.RawMessage `json:"end"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, fmt.Errorf("an event is no JSON: %w", err)
	}
	e := &Event{Type: head.Type, Time: head.Time}
	switch e.Type {
	case Started:
		if e.Count = head.Count; e.Count < 1 {
			return nil, errors.New("a cell starts without its number")
		}
	case Stdout, Stderr:
		e.Text = head.Text
	case Display:
		r, err := ParseResult(head.Result)
		if err != nil {
			return nil, err
		}
		e.Result = r
	case Failure:
		if e.Error = head.Error; e.Error == nil {
			return nil, errors.New("an error says nothing")
		}
	case Alive:
	case End:
		end, err := parseEnding(head.End)
		if err != nil {
			return nil, err
		}
		e.End = end
	default:
		return nil, fmt.Errorf("%.40q is no event", string(e.Type))
	}
	return e, nil
}

// ParseResult reads a result: an object of at most MaxForms forms.
func ParseResult(b []byte) (*Result, error) {
	var raw struct {
		Main bool            `json:"main"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("a result is no JSON object: %w", err)
	}
	r := &Result{Main: raw.Main, Data: map[string]json.RawMessage{}}
	d := json.NewDecoder(bytes.NewReader(raw.Data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("a result has no forms")
	}
	for n := 0; d.More(); n++ {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := t.(string)
		if !ok || len(name) > maxName || n >= MaxForms {
			return nil, errors.New("a result has forms that it may not have")
		}
		var form json.RawMessage
		if err := d.Decode(&form); err != nil {
			return nil, err
		}
		r.Data[name] = form
	}
	return r, nil
}

// parseEnding reads how a cell ended.
func parseEnding(b []byte) (*Ending, error) {
	if len(b) > maxPlain || bytes.Count(b, []byte("{")) > maxObjects {
		return nil, errors.New("the end of a cell is longer than it may be")
	}
	var e *Ending
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, fmt.Errorf("the end of a cell is no JSON object: %w", err)
	}
	if e == nil {
		return nil, errors.New("the end of a cell says nothing")
	}
	switch e.Status {
	case Done, Failed, TimedOut, Interrupted, Lost:
	default:
		return nil, fmt.Errorf("a cell cannot end with %.40q", e.Status)
	}
	if len(e.Files) > MaxFiles || e.Cut < 0 {
		return nil, errors.New("the end of a cell is out of its bounds")
	}
	for _, f := range e.Files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || strings.Contains(f.Path, "\x00") || f.Size < 0 {
			return nil, errors.New("a cell's file is described wrongly")
		}
	}
	return e, nil
}
