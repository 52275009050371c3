// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"sync"

	"github.com/caisson-run/caisson/sandbox"
)

// Lookup is what this host's control groups can do, found out when it is first asked for:
// a frontend may move caisson into a delegated group before. It is safe for use from many
// goroutines.
type Lookup struct {
	// Off leaves sandboxes in the caller's group.
	Off bool

	once sync.Once
	host *Host
}

// Host is nil where control groups are not used.
func (l *Lookup) Host() *Host {
	if l.Off {
		return nil
	}
	l.once.Do(func() { l.host = Current() })
	return l.host
}

// Limits says how the limits hold here that a sandbox's group is for.
func (l *Lookup) Limits() map[sandbox.LimitName]sandbox.Clause {
	memory := l.clause(Memory)
	if memory.Enforcement == sandbox.Off {
		memory.Enforcement = sandbox.Emulated
		memory.Detail = "looked at 20 times a second; no control group: " + memory.Detail
	}
	return map[sandbox.LimitName]sandbox.Clause{
		sandbox.LimitCPUs:   l.clause(CPU),
		sandbox.LimitMemory: memory,
		sandbox.LimitIO:     l.clause(IO),
		sandbox.LimitIOPS:   l.clause(IO),
	}
}

func (l *Lookup) clause(controller string) sandbox.Clause {
	switch h := l.Host(); {
	case h == nil:
		return sandbox.Clause{Enforcement: sandbox.Off, Detail: "control groups are not used"}
	case controller == IO && h.Version == 1:
		return sandbox.Clause{
			Enforcement: sandbox.Off, Detail: "cgroup v1 does not hold back buffered writes",
			Remedy: "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)",
		}
	default:
		return h.Clause(controller)
	}
}
