// SPDX-License-Identifier: Apache-2.0

package interpreter

import "strings"

// Execution is what a cell told, put together from its events.
type Execution struct {
	Count   int      `json:"execution"` // which cell of the context it was, from 1
	Stdout  string   `json:"stdout"`
	Stderr  string   `json:"stderr"`
	Results []Result `json:"results"` // in their order
	Error   *Error   `json:"error,omitempty"`
	Ending

	out, errs strings.Builder // Stdout and Stderr as they grow
}

// Add adds the next event of the cell. A copy of an Execution takes no more events.
func (x *Execution) Add(e Event) {
	switch e.Type {
	case Started:
		x.Count = e.Count
	case Stdout:
		x.out.WriteString(e.Text)
		x.Stdout = x.out.String()
	case Stderr:
		x.errs.WriteString(e.Text)
		x.Stderr = x.errs.String()
	case Display:
		x.Results = append(x.Results, *e.Result)
	case Failure:
		x.Error = e.Error
	case End:
		x.Ending = *e.End
	}
}

// Size is about how many bytes an event has.
func (e *Event) Size() int {
	n := len(e.Text) + 64
	if e.Result != nil {
		for kind, v := range e.Result.Data {
			n += len(kind) + len(v)
		}
	}
	if e.Error != nil {
		n += len(e.Error.Name) + len(e.Error.Value) + len(e.Error.Traceback)
	}
	return n
}
