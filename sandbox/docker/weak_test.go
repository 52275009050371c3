// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/sandbox/docker"
)

// engineFilter leaves the engine's system call filter out.
func engineFilter(r *docker.Request) {
	r.HostConfig.SecurityOpt = slices.DeleteFunc(r.HostConfig.SecurityOpt, func(o string) bool { return strings.HasPrefix(o, "seccomp=") })
	r.HostConfig.SecurityOpt = append(r.HostConfig.SecurityOpt, "seccomp=unconfined")
}

// agentFilter leaves out the one that the agent gives programs.
func agentFilter(r *docker.Request) {
	r.Entrypoint = slices.DeleteFunc(r.Entrypoint, func(a string) bool { return a == "-filter" })
}

// With one protection out of what the engine is asked for the escape suite finds
// out: exactly the cases about it turn red.
func TestWithOneProtectionOut(t *testing.T) {
	host := engineHost(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root: what turns red is another list for an ordinary user")
	}
	for _, v := range []struct {
		name  string
		amend func(*docker.Request)
		red   string
	}{
		// The agent's is a second wall for programs, and no wall for itself.
		{"the engine's filter", engineFilter, "K20"},
		{"both filters", func(r *docker.Request) { engineFilter(r); agentFilter(r) }, "F22 F25 K04 K05 K08 K09 K10 K12 K13 K20 K21"},
		{"masked paths", func(r *docker.Request) { r.HostConfig.MaskedPaths = []string{} }, "F18"},
		{"the IPC namespace", func(r *docker.Request) { r.HostConfig.IpcMode = "host" }, "K19"},
		{"the cgroup namespace", func(r *docker.Request) { r.HostConfig.CgroupnsMode = "host" }, "K19"},
		{"no new privileges", func(r *docker.Request) { r.HostConfig.SecurityOpt = r.HostConfig.SecurityOpt[1:] }, "K13"},
	} {
		t.Run(v.name, func(t *testing.T) {
			d := docker.New(docker.Options{Host: host})
			docker.Weaken(d, v.amend)
			attacktest.HasRed(t, d, v.red)
		})
	}
}
