// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// What a flood may cost, whatever the sandbox does.
const (
	floodConnections = 64        // the budget
	floodBytes       = 1 << 20   // the budget
	floodRoom        = 64 << 10  // that may have been on its way
	floodAtOnce      = 768       // connections of one sandbox's at one time, with those whose end is on its way
	floodMemory      = 512 << 20 // of its router
	floodFiles       = 2048      // of its router

	// floodOwn is what the sandbox may have itself: what it has sent and its router has
	// not taken yet is its memory, half a MiB for each head that a busy router is late with.
	floodOwn = "1GiB"
)

// flood uses its network without end: connections, bytes, and requests whose heads
// do not end.
func (s *suite) flood(ctx context.Context) finding {
	if s.Again == nil {
		return finding{verdict: NotApplicable, reason: "this program does not start a second caisson"}
	}
	held, f := s.tryWire(ctx)
	if f != nil {
		return *f
	}
	own := ""
	if held.Limits[sandbox.LimitMemory] == sandbox.Enforced {
		own = floodOwn // where it is merely emulated, no other may be asked for
	}
	for _, k := range []struct {
		kind, budget string
		over         func(total, peak int, bytes int64) bool
	}{
		{probe.FloodConnections, fmt.Sprintf("connections: %d", floodConnections), func(total, _ int, _ int64) bool { return total > floodConnections }},
		{probe.FloodBytes, fmt.Sprintf("egress: %dKiB", floodBytes>>10), func(_, _ int, bytes int64) bool { return bytes > floodBytes+floodRoom }},
		{probe.FloodHeads, "", func(_, peak int, _ int64) bool { return peak > floodAtOnce }},
	} {
		host, err := count()
		if err != nil {
			return unable(err)
		}
		f := s.flooded(ctx, host, k.kind, k.budget, own, k.over)
		host.close()
		if f.verdict != Pass {
			return f
		}
	}
	return s.stillServed(ctx)
}

// flooded is one flood, which a second caisson runs, with so much memory of its own;
// empty is the usual.
func (s *suite) flooded(ctx context.Context, host *counter, kind, budget, memory string, over func(total, peak int, bytes int64) bool) finding {
	file := filepath.Join(s.dir, "flood-"+kind+".yaml")
	limits := "wall: " + probeTimeout.String()
	if memory != "" {
		limits += ", memory: " + memory
	}
	text := fmt.Sprintf("version: 1\nisolation: %s\nlimits: {%s}\nfiles: {mounts: [{source: %q, target: %s}]}\nnetwork:\n  allow: [%s]\n", s.Isolation, limits, s.Program, probe.AtProbe, host.allowances())
	if budget != "" {
		text += "  budget: {" + budget + "}\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return unable(err)
	}
	cmd := s.Again("run", "--policy", file, "--", probe.AtProbe, probe.Word, probe.ModeFlood, kind, host.at(localhost), resolver, s.nonce)
	var out probeLog
	var errs tail
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return unable(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	late := time.After(probeTimeout)
	for {
		memory, files := routerOf(cmd.Process.Pid)
		if memory > floodMemory || files > floodFiles {
			_ = cmd.Process.Kill()
			<-ended
			return breach("%s: the router had %d MiB of memory and %d files open", kind, memory>>20, files)
		}
		select {
		case <-ended:
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			<-ended
			return unable(ctx.Err())
		case <-late:
			_ = cmd.Process.Kill()
			<-ended
			return breach("%s: it did not end within %s", kind, probeTimeout)
		case <-time.After(20 * time.Millisecond):
			continue
		}
		break
	}
	_, total, peak, bytes := host.now()
	switch {
	case over(total, peak, bytes):
		return breach("%s: a host got %d connections, %d at one time, and %d bytes", kind, total, peak, bytes)
	case total == 0:
		return unable(fmt.Errorf("%s: nothing arrived: %s", kind, errs.text()))
	}
	select {
	case <-out.Said(probe.CaseReady):
		if budget != "" {
			return breach("%s: its budget is used up, and it ran on", kind)
		}
	default:
		if budget == "" {
			return unable(fmt.Errorf("%s: the probe ended early: %s", kind, errs.text()))
		}
	}
	return pass()
}

// stillServed has another sandbox reach a host: a flood was its sandbox's alone.
func (s *suite) stillServed(ctx context.Context) finding {
	all, end, err := ears(1)
	if err != nil {
		return unable(err)
	}
	defer end()
	return s.outside(ctx, "N18", all[0], func(c *session.Call) { allowing(c, all[0]) }, func() string { return "" })
}

// routerOf is what the router of a caisson has: memory and open files, as far as
// this process may look.
func routerOf(owner int) (memory, files int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", owner))
	for _, task := range tasks {
		list, _ := os.ReadFile(task)
		for _, word := range strings.Fields(string(list)) {
			argv, _ := os.ReadFile("/proc/" + word + "/cmdline")
			if !strings.HasPrefix(string(argv), wire.Argv0) {
				continue
			}
			statm, _ := os.ReadFile("/proc/" + word + "/statm")
			if f := strings.Fields(string(statm)); len(f) > 1 {
				pages, _ := strconv.Atoi(f[1])
				memory += pages * os.Getpagesize()
			}
			open, _ := os.ReadDir("/proc/" + word + "/fd")
			files += len(open)
		}
	}
	return memory, files
}
