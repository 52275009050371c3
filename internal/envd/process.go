// SPDX-License-Identifier: Apache-2.0

// Package envd has the names, paths and messages of E2B's envd, the agent that its clients
// talk with: api/e2b answers them, and our agent inside takes the same ones.
package envd

import "math"

// envd's process.Process.
const (
	PathStart       = "/process.Process/Start"
	PathConnect     = "/process.Process/Connect"
	PathList        = "/process.Process/List"
	PathSendInput   = "/process.Process/SendInput"
	PathStreamInput = "/process.Process/StreamInput"
	PathCloseStdin  = "/process.Process/CloseStdin"
	PathSendSignal  = "/process.Process/SendSignal"
	PathUpdate      = "/process.Process/Update"
)

// Names of headers that the process services know, in requests.
const (
	// TimeoutHeader is Connect's: milliseconds that a stream may take. A process
	// that Start made is killed then; nothing else ends it.
	TimeoutHeader = "Connect-Timeout-Ms"
	// KeepaliveHeader is E2B's: after so many seconds without an event the
	// stream has a keepalive.
	KeepaliveHeader = "Keepalive-Ping-Interval"
)

// ProcessConfig is what a process is made of.
type ProcessConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"` // on top of the sandbox's
	Cwd  string            `json:"cwd,omitempty"`
}

// PTY asks for a terminal, or for another size of it.
type PTY struct {
	Size PTYSize `json:"size"`
}

// PTYSize is a terminal's in characters. Numbers that no terminal has mean the
// largest that one can have.
type PTYSize struct {
	Cols uint32 `json:"cols,omitempty"`
	Rows uint32 `json:"rows,omitempty"`
}

// Size16 is the same as a kernel has it.
func (p *PTY) Size16() (rows, cols uint16) {
	return uint16(min(p.Size.Rows, math.MaxUint16)), uint16(min(p.Size.Cols, math.MaxUint16))
}

// ProcessStart is the request of Start.
type ProcessStart struct {
	Process ProcessConfig `json:"process"`
	PTY     *PTY          `json:"pty,omitempty"`
	Tag     string        `json:"tag,omitempty"`
	Stdin   *bool         `json:"stdin,omitempty"` // absent means true: older clients
}

// ProcessSelector names a process.
type ProcessSelector struct {
	PID int    `json:"pid,omitempty"`
	Tag string `json:"tag,omitempty"`
}

// ProcessConnect is the request of Connect, and of CloseStdin.
type ProcessConnect struct {
	Process ProcessSelector `json:"process"`
}

// ProcessInfo is a process in List's answer.
type ProcessInfo struct {
	Config ProcessConfig `json:"config"`
	PID    int           `json:"pid"`
	Tag    string        `json:"tag,omitempty"`
}

// ProcessList is List's answer.
type ProcessList struct {
	Processes []ProcessInfo `json:"processes"`
}

// ProcessInput is bytes for a process: for its terminal if it has one.
type ProcessInput struct {
	Stdin *[]byte `json:"stdin,omitempty"`
	PTY   *[]byte `json:"pty,omitempty"`
}

// ProcessSendInput is the request of SendInput.
type ProcessSendInput struct {
	Process ProcessSelector `json:"process"`
	Input   ProcessInput    `json:"input"`
}

// ProcessStreamInput is one message of StreamInput: Start first.
type ProcessStreamInput struct {
	Start *ProcessConnect `json:"start,omitempty"`
	Data  *struct {
		Input ProcessInput `json:"input"`
	} `json:"data,omitempty"`
	Keepalive *struct{} `json:"keepalive,omitempty"`
}

// ProcessSignal is the request of SendSignal.
type ProcessSignal struct {
	Process ProcessSelector `json:"process"`
	Signal  string          `json:"signal"` // SIGNAL_SIGKILL, SIGNAL_SIGTERM
}

// ProcessUpdate is the request of Update.
type ProcessUpdate struct {
	Process ProcessSelector `json:"process"`
	PTY     *PTY            `json:"pty,omitempty"`
}
