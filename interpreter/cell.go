// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"encoding/json"
	"time"
)

// Cell is a piece of code to run in a context.
type Cell struct {
	// Context is the ID of the context. Where it is empty the default context of
	// Language is taken, which is made when it is first needed.
	Context  string            `json:"context,omitempty"`
	Language string            `json:"language,omitempty"`
	Code     string            `json:"code"`
	Env      map[string]string `json:"env,omitempty"` // while this cell runs
	Dir      string            `json:"dir,omitempty"` // while this cell runs
	// Timeout interrupts the cell; the context keeps its state. 0 is no limit of its own.
	Timeout time.Duration `json:"timeout,omitempty"`
	// MaxOutput is how many bytes of output and results are handed on; what follows is
	// counted and thrown away. 0 is no limit of its own.
	MaxOutput int64 `json:"maxOutput,omitempty"`
}

// EventType says what an event tells.
type EventType string

// The events of a cell: started first, end last and always.
const (
	Started EventType = "started" // Count
	Stdout  EventType = "stdout"  // Text
	Stderr  EventType = "stderr"  // Text
	Display EventType = "display" // Result
	Failure EventType = "error"   // Error
	Alive   EventType = "alive"   // nothing has happened for a while
	End     EventType = "end"     // End
)

// Event is one thing that happened while a cell ran. Which fields are set goes by Type.
type Event struct {
	Type   EventType `json:"type"`
	Time   time.Time `json:"time,omitzero"`
	Count  int       `json:"count,omitempty"` // which cell of the context it is, from 1
	Text   string    `json:"text,omitempty"`
	Result *Result   `json:"result,omitempty"`
	Error  *Error    `json:"error,omitempty"`
	End    *Ending   `json:"end,omitempty"`
}

// Result is something that a cell shows, in each form that it has.
type Result struct {
	// Main says that it is the value of the cell's last expression.
	Main bool `json:"main,omitempty"`
	// Data has the forms by MIME type. Text is a JSON string, and so are bytes, in
	// base64; JSON types and ours (ChartType, DataType) are JSON values.
	Data map[string]json.RawMessage `json:"data"`
}

// MIME types of our own.
const (
	ChartType = "application/vnd.caisson.chart+json" // a chart as data
	DataType  = "application/vnd.caisson.data+json"  // a table: its columns, by name
)

// ExitCode is the name of the Error with which a cell of Bash ends whose last command has
// failed; its Value is that command's code.
const ExitCode = "ExitCode"

// Error is an exception that a cell did not catch.
type Error struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"` // plain text at the user's lines
}

// How a cell ended.
const (
	Done        = "ok"
	Failed      = "error"       // it raised
	TimedOut    = "timeout"     // its time was over
	Interrupted = "interrupted" // its caller wanted that, or went away
	Lost        = "lost"        // its kernel ended, and the state with it
)

// Ending is how a cell ended.
type Ending struct {
	Status string `json:"status"`
	// Reason says in a sentence why it is no ok: the memory limit, an exit code, a signal.
	Reason string `json:"reason,omitempty"`
	// Cut is how many bytes of output and results were not handed on.
	Cut int64 `json:"cut,omitempty"`
	// Files are those below the cell's directory that it made or changed, at most
	// MaxFiles; More says that there were others.
	Files []File `json:"files,omitempty"`
	More  bool   `json:"more,omitempty"`
}

// MaxFiles is how many files an Ending names at most.
const MaxFiles = 200

// File is a file that a cell made or changed.
type File struct {
	Path string `json:"path"` // absolute, inside
	Size int64  `json:"size"`
	Type string `json:"type,omitempty"` // MIME, by its name
}
