// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// bench is one row to be measured.
type bench struct {
	name    string
	measure func(context.Context) row
}

// list is what this call measures.
func (s *stage) list() []bench {
	if s.o.soak > 0 {
		return s.soakRows()
	}
	return benches(s)
}

// benches lists the rows, in the order in which the goals are written down.
func benches(s *stage) []bench {
	root := s.users[0]
	var list []bench
	for _, u := range s.users {
		list = append(list, s.whole(u, "≤ 0.65", "/bin/true"))
	}
	list = append(list, s.whole(root, "≤ 0.70", "/usr/bin/python3", "-c", "print(1)"))
	list = append(list,
		bench{"whole run of \"/bin/true\" on a container image", s.onImage},
		bench{fmt.Sprintf("an image of %.0f MB made ready", largeImage/1e6), s.unpacked},
		bench{fmt.Sprintf("a template of %d steps built again, all known", knownSteps), s.knownBuild},
		bench{"driver, start to first byte of /bin/echo", s.firstByte},
		bench{"driver, start to first byte of /bin/echo, in a program that carries the engine as caisson does", s.carriedFirstByte},
		bench{fmt.Sprintf("%d at once on %d cores, each a caisson run", atOnce, onCores), s.burst},
		bench{fmt.Sprintf("%d at once on %d cores, by one program that embeds caisson", atOnce, onCores), s.embedding},
		bench{"memory while a program prints, default output limit", func(ctx context.Context) row { return s.flooded(ctx) }},
		bench{"memory while a program prints, all of it passed on", func(ctx context.Context) row { return s.flooded(ctx, "--output", fmt.Sprint(2*s.o.flood)) }},
		s.cold("≤ 2.50", "/bin/true"),
		s.cold("≤ 1.15", "/usr/bin/python3", "-c", "print(1)"),
		s.pooled("≤ 1.50", "/bin/true"),
		s.pooled("≤ 1.15", "/usr/bin/python3", "-c", "print(1)"),
		s.rate("≥ 0.50", "/bin/true"),
		s.pooledRate("≥ 0.50", "/bin/true"),
		s.besideJudge("≥ 3.00", "/bin/true"),
	)
	list = append(list, s.floors("/bin/true")...)
	list = append(list,
		s.beside(root, "≤ 4.50", "/bin/true"),
		s.beside(root, "≤ 1.15", "/usr/bin/python3", "-c", "print(1)"),
		bench{"whole run of \"/bin/true\" on Docker, beside docker run", s.docker},
	)
	work, project := s.repository(), s.packages()
	for _, level := range []string{"gvisor", "process"} {
		list = append(append(list, work.rows(level)...), project.rows(level)...)
	}
	list = append(list, s.networkRows()...)
	list = append(list, s.sdkRows()...)
	list = append(list, s.wakeRows()...)
	list = append(list, s.interpreterRows()...)
	list = append(list, s.machineRows()...)
	list = append(list, s.mcpRows()...)
	list = append(list, policyRows()...)
	return append(list,
		bench{fmt.Sprintf("audit records on the disk, %d calls at once", recorders), s.record},
		bench{"caisson version", s.version},
		bench{"size of the binary", s.size},
	)
}

// whole measures from the start of the process to its end.
func (s *stage) whole(u user, goal string, argv ...string) bench {
	return bench{fmt.Sprintf("whole run of %q", argv), func(ctx context.Context) row {
		p := interleave(ctx, s.o.pairs,
			timed(func(ctx context.Context) *exec.Cmd { return s.caissonRun(ctx, u, argv...) }),
			timed(func(ctx context.Context) *exec.Cmd { return s.runscDo(ctx, u, argv...) }))
		r := p.row(goal)
		r.who = u.name
		return r
	}}
}

// timed runs a command to its end, with its output thrown away.
func timed(command func(context.Context) *exec.Cmd) once {
	return func(ctx context.Context) (took, error) {
		cmd := command(ctx)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		began := time.Now()
		if err := cmd.Run(); err != nil {
			return took{}, failure(cmd, err, stderr.String())
		}
		return took{time.Since(began), processorTime(cmd)}, nil
	}
}

// processorTime is what an ended command used, and all it waited for.
func processorTime(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// version measures a command that starts no sandbox: what the binary costs by
// itself.
func (s *stage) version(ctx context.Context) row {
	u := s.users[0]
	run := timed(func(ctx context.Context) *exec.Cmd { return s.caisson(ctx, u, "version") })
	// A stock runsc pays for its own inits; it is here for scale.
	p := interleave(ctx, s.o.pairs, run, timed(func(ctx context.Context) *exec.Cmd {
		return s.command(ctx, u, "runsc", []string{"--version"})
	}))
	r := p.row("< 30 ms")
	r.who = u.name
	return r
}

func (s *stage) size(context.Context) row {
	mb := func(name string) string {
		st, err := os.Stat(s.path(name))
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%.1f MB", float64(st.Size())/1e6)
	}
	return row{ours: mb("caisson"), theirs: mb("runsc"), goal: "< 75 MB"}
}
