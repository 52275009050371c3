// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"strconv"
	"syscall"
	"time"
)

// ProcessSelector names a process of a running sandbox by its PID inside or, when that is
// 0, by its tag.
type ProcessSelector struct {
	PID int
	Tag string
}

// String is for messages.
func (s ProcessSelector) String() string {
	if s.PID != 0 {
		return "process " + strconv.Itoa(s.PID)
	}
	quoted := strconv.Quote(s.Tag[:min(len(s.Tag), 512)])
	return "process " + quoted[1:len(quoted)-1]
}

// ProcessInfo is a running process in a listing. Argv, Env and Dir are as they were asked for.
type ProcessInfo struct {
	PID  int // inside
	Tag  string
	Argv []string
	Env  map[string]string
	Dir  string
}

// Stream says what a piece of output was written to.
type Stream int

// The streams of a process. One with a terminal has only that.
const (
	StreamStdout Stream = iota + 1
	StreamStderr
	StreamTerminal
)

// Output is a piece of what a process wrote.
type Output struct {
	Stream Stream
	Data   []byte // until the next piece is asked for
}

// ProcessEnd is how a process ended.
type ProcessEnd struct {
	Code    int            // -1 when a signal ended it
	Signal  syscall.Signal // Linux's number; 0 when it ended by itself
	Expired bool           // it was killed because its own time was over
}

// Metrics is what the kernel inside counts. It is the guest's word: limits and bills stand
// on Instance.Usage.
type Metrics struct {
	Time                        time.Time
	CPUs                        uint32
	CPUPercent                  float64 // all processors together are 100; since the call before
	MemTotal, MemUsed, MemCache uint64  // bytes
	DiskTotal, DiskUsed         uint64  // bytes
}
