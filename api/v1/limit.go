// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"math"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Limits are those of a sandbox or a run, by the names of the policy file. One that
// is left out is the policy's; a request only tightens.
type Limits struct {
	Wall      float64 `json:"wall,omitempty" minimum:"0.001" maximum:"2592000" doc:"Seconds that it may run, all in all"`
	CPUTime   float64 `json:"cpu_time,omitempty" minimum:"0.001" maximum:"2592000" doc:"Seconds of processor time of all its processes together"`
	CPUs      float64 `json:"cpus,omitempty" minimum:"0.01" maximum:"1024" doc:"Share of processors: 0.5 is half of one"`
	Memory    int64   `json:"memory,omitempty" minimum:"1" maximum:"1125899906842624" doc:"Bytes that programs may use"`
	Processes int     `json:"processes,omitempty" minimum:"1" maximum:"4194304" doc:"Processes and threads"`
	OpenFiles int     `json:"open_files,omitempty" minimum:"1" maximum:"1048576" doc:"Open files of one process"`
	FileSize  int64   `json:"file_size,omitempty" minimum:"1" maximum:"1125899906842624" doc:"Bytes of one file"`
	Disk      int64   `json:"disk,omitempty" minimum:"1" maximum:"1125899906842624" doc:"Bytes of all that is written but to /tmp"`
	Inodes    int64   `json:"inodes,omitempty" minimum:"1" maximum:"4294967296" doc:"Files and directories"`
	Tmp       int64   `json:"tmp,omitempty" minimum:"1" maximum:"1125899906842624" doc:"Bytes of /tmp"`
	IO        int64   `json:"io,omitempty" minimum:"1" maximum:"1125899906842624" doc:"Block I/O in bytes a second, each direction"`
	IOPS      int64   `json:"iops,omitempty" minimum:"1" maximum:"1000000000" doc:"Block I/O operations a second, each direction"`
	Output    int64   `json:"output,omitempty" minimum:"1" maximum:"1125899906842624" doc:"Bytes of each output stream that are kept"`
}

// limits are what l asks for.
func (l *Limits) limits() sandbox.Limits {
	if l == nil {
		return sandbox.Limits{}
	}
	out := sandbox.Limits{
		Wall: seconds(l.Wall), CPUTime: seconds(l.CPUTime), CPUs: l.CPUs, Memory: l.Memory, Processes: l.Processes, OpenFiles: l.OpenFiles,
		FileSize: l.FileSize, Disk: l.Disk, Inodes: l.Inodes, Tmp: l.Tmp, IO: l.IO, IOPS: l.IOPS, Output: l.Output,
		Explicit: map[sandbox.LimitName]bool{},
	}
	for name, is := range map[sandbox.LimitName]bool{
		sandbox.LimitWall: l.Wall != 0, sandbox.LimitCPUTime: l.CPUTime != 0, sandbox.LimitCPUs: l.CPUs != 0, sandbox.LimitMemory: l.Memory != 0,
		sandbox.LimitProcesses: l.Processes != 0, sandbox.LimitOpenFiles: l.OpenFiles != 0, sandbox.LimitFileSize: l.FileSize != 0,
		sandbox.LimitDisk: l.Disk != 0, sandbox.LimitInodes: l.Inodes != 0, sandbox.LimitTmp: l.Tmp != 0, sandbox.LimitIO: l.IO != 0,
		sandbox.LimitIOPS: l.IOPS != 0, sandbox.LimitOutput: l.Output != 0,
	} {
		if is {
			out.Explicit[name] = true
		}
	}
	return out
}

// limitsOf shows limits that hold; 0 is none.
func limitsOf(l sandbox.Limits) Limits {
	return Limits{
		Wall: l.Wall.Seconds(), CPUTime: l.CPUTime.Seconds(), CPUs: l.CPUs, Memory: l.Memory, Processes: l.Processes, OpenFiles: l.OpenFiles,
		FileSize: l.FileSize, Disk: l.Disk, Inodes: l.Inodes, Tmp: l.Tmp, IO: l.IO, IOPS: l.IOPS, Output: l.Output,
	}
}

// seconds is a time in seconds, rounded up to milliseconds. The bounds of requests
// keep it far from what a Duration holds.
func seconds(s float64) time.Duration {
	return time.Duration(math.Ceil(s*1000)) * time.Millisecond
}
