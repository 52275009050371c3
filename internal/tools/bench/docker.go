// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/caisson-run/caisson/sandbox/docker/enginetest"
)

// dockerFlags are what the Docker level asks an engine for, as docker run takes
// it: the same limits, the same confinement, the host's programs.
var dockerFlags = strings.Fields(`--rm -i --network none --read-only --cap-drop ALL --security-opt no-new-privileges
	--ipc none --cgroupns private --log-driver none --hostname sandbox --user 1000:1000
	--memory 256m --memory-swap 256m --cpus 1 --pids-limit 160 --ulimit core=0 --ulimit nofile=4096
	--tmpfs /home/user:size=256m --tmpfs /tmp:size=100m --tmpfs /dev/shm:size=64m
	--mount type=bind,src=/usr,dst=/usr,readonly --mount type=bind,src=/etc,dst=/etc,readonly`)

// docker measures the Docker level on an engine of its own against the engine's
// own command line: docker run, with the same flags and the image that caisson
// has given to the engine.
func (s *stage) docker(ctx context.Context) row {
	no := func(why any) row { return row{goal: "≤ 0.85", notes: []string{fmt.Sprint("not measured: ", why)}} }
	e, err := enginetest.Start(ctx)
	if err != nil {
		return no(err)
	}
	defer e.Stop()
	u := s.users[0]
	on := func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+e.Host)
		return cmd
	}
	caisson := func(ctx context.Context) *exec.Cmd {
		return on(s.caisson(ctx, u, "run", "--isolation", "docker", "--", "/bin/true"))
	}
	cli, err := exec.LookPath("docker")
	if err != nil {
		return no(err)
	}
	if out, err := caisson(ctx).CombinedOutput(); err != nil { // it gives the engine its image
		return no(fmt.Sprintf("%v: %s", err, out))
	}
	image, err := on(exec.CommandContext(ctx, cli, "images", "--format", "{{.Repository}}:{{.Tag}}")).Output()
	name, _, _ := strings.Cut(strings.TrimSpace(string(image)), "\n")
	if err != nil || name == "" {
		return no(fmt.Sprintf("no image: %v", err))
	}
	p := interleave(ctx, s.o.pairs, timed(caisson), timed(func(ctx context.Context) *exec.Cmd {
		return on(exec.CommandContext(ctx, cli, append(append([]string{"run"}, dockerFlags...), "--entrypoint", "/bin/true", name)...))
	}))
	r := p.row("≤ 0.85")
	r.who, r.cpu = u.name, "" // the engine's work is no child's of ours
	return r
}
