// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/caisson-run/caisson/interpreter"

// The paths of the code interpreter.
const (
	PathContext          = "/caisson/context"           // ContextRequest; answers with interpreter.Context
	PathContextList      = "/caisson/context/list"      // answers with ContextList
	PathContextRestart   = "/caisson/context/restart"   // ContextRef
	PathContextInterrupt = "/caisson/context/interrupt" // ContextRef
	PathContextRemove    = "/caisson/context/remove"    // ContextRef
	PathCell             = "/caisson/cell"              // CellRequest; answers with a line of JSON for each interpreter.Event
)

// EventsType is the content type of a cell's events.
const EventsType = "application/x-ndjson"

// ContextRequest makes a context. Limits are the rlimits of its kernel.
type ContextRequest struct {
	interpreter.ContextOptions
	Limits Limits `json:"caissonLimits,omitzero"`
}

// ContextRef names a context.
type ContextRef struct {
	ID string `json:"id"`
}

// ContextList has the contexts of a sandbox, the oldest first.
type ContextList struct {
	Contexts []interpreter.Context `json:"contexts"`
}

// CellRequest runs a cell. Limits are the rlimits of a kernel that it starts.
type CellRequest struct {
	interpreter.Cell
	Limits Limits `json:"caissonLimits,omitzero"`
}
