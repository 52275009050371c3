// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// meter reads what a container uses: from its control group where the engine's
// host is this one, which costs less than a millisecond, else from the engine.
type meter struct {
	engine *engine
	name   string
	group  group
	base   time.Duration // CPU time before any program was started
	asked  int64         // the memory limit, where a runtime was named: see tellsNothing
}

// group is a container's control group, read only.
type group interface {
	Usage() sandbox.Usage
	OOMKilled() bool
}

func newMeter(e *engine, name string, pid int, here bool) meter {
	m := meter{engine: e, name: name}
	if here {
		m.group = groupOf(pid)
	}
	if m.group != nil {
		if u := m.group.Usage(); u.CPU != nil {
			m.base = *u.CPU
		}
	}
	return m
}

func (m *meter) close() {}

// outOfMemory says whether the memory limit has killed something. Without a
// group to look at only the engine's own word remains.
func (m *meter) outOfMemory() bool {
	if m.group != nil {
		return m.group.OOMKilled()
	}
	if m.engine == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var c struct{ State struct{ OOMKilled bool } }
	return m.engine.call(ctx, http.MethodGet, "/containers/"+m.name+"/json", nil, nil, &c) == nil && c.State.OOMKilled
}

// holds refuses a limit that was written down, where the container's control group is
// not what holds its processes, and nothing else does.
func (m *meter) holds(ctx context.Context, l *sandbox.Limits, ociRuntime string) error {
	asked := map[sandbox.LimitName]bool{sandbox.LimitCPUTime: l.CPUTime > 0}
	if ociRuntime == runtimeGVisor { // no kernel inside does
		asked[sandbox.LimitMemory], asked[sandbox.LimitCPUs] = l.Memory > 0, l.CPUs > 0
	}
	for name, set := range asked {
		if !set || !l.Explicit[name] || m.group != nil {
			continue
		}
		if u, err := m.usage(ctx); err != nil || u.CPU != nil {
			return err
		}
		return errNoGroup(name, ociRuntime)
	}
	return nil
}

func (m *meter) usage(ctx context.Context) (sandbox.Usage, error) {
	if m.group == nil {
		return m.stats(ctx)
	}
	u := m.group.Usage()
	if u.CPU != nil {
		*u.CPU = max(0, *u.CPU-m.base)
	}
	return u, nil
}

// stats asks the engine once, without the second that it takes to compute a
// percentage.
func (m *meter) stats(ctx context.Context) (sandbox.Usage, error) {
	var s struct {
		CPUStats struct {
			CPUUsage struct {
				TotalUsage *int64 `json:"total_usage"` // nanoseconds
			} `json:"cpu_usage"`
		} `json:"cpu_stats"`
		MemoryStats struct {
			Usage    *int64  `json:"usage"`
			MaxUsage *int64  `json:"max_usage"` // cgroup v1 only
			Limit    *uint64 `json:"limit"`
		} `json:"memory_stats"`
		PidsStats struct {
			Current *int `json:"current"`
		} `json:"pids_stats"`
	}
	err := m.engine.call(ctx, http.MethodGet, "/containers/"+m.name+"/stats", url.Values{"stream": {"0"}, "one-shot": {"1"}}, nil, &s)
	if err != nil {
		return sandbox.Usage{}, err
	}
	if tellsNothing(s.MemoryStats.Limit, m.asked) {
		return sandbox.Usage{At: time.Now()}, nil
	}
	u := sandbox.Usage{At: time.Now(), Memory: s.MemoryStats.Usage, MemoryPeak: s.MemoryStats.MaxUsage, Processes: s.PidsStats.Current}
	if ns := s.CPUStats.CPUUsage.TotalUsage; ns != nil && *ns > 0 {
		d := time.Duration(*ns)
		u.CPU = &d
	}
	return u, nil
}
