// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// The paths of our own services. envd's (process.Process, filesystem.Filesystem,
// /files, /health) are served beside them.
const (
	PathExec    = "/caisson/exec"    // frames both ways
	PathSignal  = "/caisson/signal"  // SignalRequest
	PathResize  = "/caisson/resize"  // ResizeRequest
	PathCollect = "/caisson/collect" // CollectRequest; answers with frames
	PathPlace   = "/caisson/place"   // a tar stream, with root=DIR
	PathResume  = "/caisson/resume"  // ResumeRequest; answers with ResumeAnswer
	PathTunnel  = "/caisson/tunnel"  // ?port=N; bytes both ways
)

// StartRequest is one program.
type StartRequest struct {
	// ID names the program for SignalRequest and ResizeRequest.
	ID   string   `json:"id"`
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"` // the whole environment
	Dir  string   `json:"dir"`
	UID  uint32   `json:"uid"`
	GID  uint32   `json:"gid"`
	// NewPrivileges lets set-user-id programs work (sudo).
	NewPrivileges bool   `json:"newPrivileges,omitempty"`
	Limits        Limits `json:"limits,omitzero"`
	Terminal      *Size  `json:"terminal,omitempty"`
	// Stdin says that Stdin frames follow; otherwise it is /dev/null.
	Stdin bool `json:"stdin,omitempty"`
}

// Limits are rlimits of one process; 0 leaves one as it is. No core is ever
// dumped.
type Limits struct {
	OpenFiles uint64 `json:"openFiles,omitempty"`
	Processes uint64 `json:"processes,omitempty"` // of the same user
	FileSize  uint64 `json:"fileSize,omitempty"`  // bytes
	CPU       uint64 `json:"cpu,omitempty"`       // seconds
}

// Size is a terminal's.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Check says what is wrong with a request before anything is done for it.
func (r *StartRequest) Check() error {
	switch {
	case len(r.Argv) == 0 || r.Argv[0] == "":
		return errors.New("there is no program to start")
	case r.Dir == "" || !path.IsAbs(r.Dir):
		return fmt.Errorf("the working directory %q is not absolute", r.Dir)
	case len(r.ID) > 128:
		return errors.New("the id is longer than 128 bytes")
	case strings.Contains(r.Dir, "\x00"):
		return errors.New("the working directory has a NUL byte")
	}
	for _, a := range r.Argv {
		if strings.Contains(a, "\x00") {
			return errors.New("an argument has a NUL byte")
		}
	}
	for _, e := range r.Env {
		if i := strings.IndexByte(e, '='); i <= 0 || strings.Contains(e, "\x00") {
			return errors.New("a variable is not KEY=value, or has a NUL byte")
		}
	}
	return nil
}

// StartedEvent says that the program runs.
type StartedEvent struct {
	PID      int  `json:"pid"`
	Terminal bool `json:"terminal,omitempty"` // Stdout is one
}

// Failure says why a program did not start.
type Failure string

const (
	NotFound      Failure = "not_found"      // there is no such command: 127
	NotExecutable Failure = "not_executable" // there is, but it cannot be run: 126
	NoDirectory   Failure = "no_directory"   // the working directory cannot be entered
	Refused       Failure = "refused"        // the request contradicts itself
	Failed        Failure = "failed"         // the agent could not do its part
)

// ArgumentsTooLong is what NotExecutable says where the kernel takes no argument so long,
// and what to do.
const ArgumentsTooLong = "argument list too long: one argument may have 128 KiB; put more in a file, or pass it on standard input"

// ExitEvent is the end.
type ExitEvent struct {
	Code    int     `json:"code"`             // the exit code; as a shell would count it when Signal or Failure is set
	Signal  int     `json:"signal,omitempty"` // the signal that ended it
	Failure Failure `json:"failure,omitempty"`
	Message string  `json:"message,omitempty"` // a phrase for people, with Failure
	Expired bool    `json:"expired,omitempty"` // it was killed because its time was over
}

// Scope says whom a signal reaches.
type Scope string

const (
	Process Scope = "process" // the program alone
	Group   Scope = "group"   // its process group; with a terminal, the foreground job's too
	Tree    Scope = "tree"    // it and what descends from it, as far as that can be seen
	All     Scope = "all"     // every process inside but the agent
)

// SignalRequest sends a signal.
type SignalRequest struct {
	ID     string `json:"id,omitempty"`
	Signal int    `json:"signal"`
	Scope  Scope  `json:"scope"`
}

// Check says what is wrong with a request.
func (r *SignalRequest) Check() error {
	if r.Signal < 1 || r.Signal > 64 {
		return fmt.Errorf("%d is no signal", r.Signal)
	}
	switch r.Scope {
	case Process, Group, Tree:
		if r.ID == "" {
			return errors.New("the signal names no program")
		}
	case All:
	default:
		return fmt.Errorf("%q is no scope", string(r.Scope))
	}
	return nil
}

// ResizeRequest changes a terminal's size.
type ResizeRequest struct {
	ID   string `json:"id"`
	Size Size   `json:"size"`
}
