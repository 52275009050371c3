// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"context"
	"maps"
	"runtime"
	"strings"
	"time"

	"github.com/caisson-run/caisson/internal/linux/engine"
	"github.com/caisson-run/caisson/sandbox"
)

// Probe says what gVisor can do on this host. It starts nothing.
func (d *Driver) Probe(context.Context) (sandbox.Capabilities, error) {
	what, date := Engine()
	c := sandbox.Capabilities{
		Engine: what, EngineDate: date,
		Limits: d.limits(),
		Root:   true, Terminal: true, CopyOnWrite: true, ReadWrite: true, Masks: true, InertSockets: true, Network: true, TellsAttempts: true, Images: true, EROFS: true, Pause: true, Snapshot: true, Survives: true, Executables: true, Changes: true,
	}
	c.Wire = sandbox.WirePackets
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		c.Unusable = "gVisor runs on amd64 and arm64 only, this is " + runtime.GOARCH
	}
	if builtWithCgo {
		c.Unusable, c.Remedy = cgoProblem, cgoRemedy
	}
	if h := d.host(); h != nil {
		if why, remedy := h.Returns(); why != "" {
			c.Survives, c.NoSurvival = false, sandbox.Clause{Enforcement: sandbox.Off, Detail: why, Remedy: remedy}
			c.Notes = append(c.Notes, "sandboxes end with a daemon that is killed: "+why+" ("+remedy+")")
		}
		c.Notes = append(c.Notes, h.Notes...)
	}
	return c, nil
}

// What is said of a program that was built with cgo.
const (
	cgoProblem = "this program was built with cgo, and has to be built with CGO_ENABLED=0: gVisor executes it again where there is no dynamic linker"
	cgoRemedy  = "build it with CGO_ENABLED=0"
)

// limits says how each limit holds here.
func (d *Driver) limits() map[sandbox.LimitName]sandbox.Clause {
	kernel := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by gVisor's kernel"}
	caisson := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by caisson"}
	l := map[sandbox.LimitName]sandbox.Clause{
		sandbox.LimitWall:      caisson,
		sandbox.LimitOutput:    caisson,
		sandbox.LimitCPUTime:   {Enforcement: sandbox.Enforced, Detail: "read several times a second"},
		sandbox.LimitProcesses: kernel,
		sandbox.LimitOpenFiles: kernel,
		sandbox.LimitFileSize:  kernel,
		sandbox.LimitDisk:      {Enforcement: sandbox.Enforced, Detail: "by gVisor's kernel; what is mounted read-write is not scratch and not counted"},
		sandbox.LimitInodes:    {Enforcement: sandbox.Enforced, Detail: "by gVisor's kernel, for the home directory and /tmp; copy-on-write mounts count bytes only"},
		sandbox.LimitTmp:       kernel,
	}
	maps.Copy(l, d.groups.Limits())
	return l
}

// Engine is the embedded gVisor: a phrase with its version, and the day of
// the commit it was made from.
func Engine() (string, time.Time) {
	version := engine.GVisor()
	if version == "" {
		return "gVisor, systrap", time.Time{}
	}
	date := pseudoVersionDate(version)
	return "gVisor " + date.Format("20060102") + ", systrap", date
}

// pseudoVersionDate reads the time in v0.0.0-20260905035102-160fafc42237
// (https://go.dev/ref/mod#pseudo-versions); zero when there is none.
func pseudoVersionDate(version string) time.Time {
	parts := strings.Split(version, "-")
	if len(parts) != 3 {
		return time.Time{}
	}
	_, stamp, _ := strings.Cut("."+parts[1], ".")
	t, err := time.Parse("20060102150405", stamp)
	if err != nil {
		return time.Time{}
	}
	return t
}
