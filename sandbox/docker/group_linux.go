// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// groupOf is the control group of a container's first process, or nil.
func groupOf(pid int) group {
	g := cgroup.Of(pid)
	if g == nil {
		return nil
	}
	return g
}

// inGroup says whether pid is, on this machine, in the control group that an engine has
// made for the container with that ID, which cannot be guessed.
func inGroup(pid int, id string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && containerGroup(string(b), id)
}

// containerGroup looks for it in what /proc says, where memory is counted: by the names
// that Docker and Podman give, with systemd and without.
func containerGroup(groups, id string) bool {
	if len(id) != 64 {
		return false
	}
	names := []string{id, "docker-" + id + ".scope", "libpod-" + id, "libpod-" + id + ".scope"}
	unified := false
	for line := range strings.Lines(groups) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		its := slices.Contains(names, path.Base(part[2]))
		if slices.Contains(strings.Split(part[1], ","), "memory") {
			return its // version 1, whatever else there is
		}
		unified = unified || part[0] == "0" && its
	}
	return unified
}

// limitSockets does what the engine was asked for (KernelMemoryTCP) and its
// runtime leaves out: runc ignores it since 1.0. Only root can.
func limitSockets(g group, memory int64) error {
	own, ok := g.(*cgroup.Group)
	if !ok || memory <= 0 || os.Geteuid() != 0 {
		return nil
	}
	if err := own.LimitSockets(memory); err != nil {
		return &sandbox.Error{Op: "limit memory", Kind: sandbox.ErrUnavailable, Problem: "socket buffers cannot be bounded", Cause: err,
			Hint: "use cgroup v2, which counts them as memory"}
	}
	return nil
}
