// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"encoding/json"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/seccomp"
)

// architectures are the entries that the engine's filter knows; for another it
// kills the thread that knocks, and what is left of a Go program then hangs. So
// x32's is among them, and the filter of programs answers there: ENOSYS. For the
// 32-bit entry that one kills the process.
var architectures = map[string][]string{
	"amd64": {"SCMP_ARCH_X86_64", "SCMP_ARCH_X32"},
	"arm64": {"SCMP_ARCH_AARCH64"},
}

// profile is the system call filter that the engine puts on everything in the
// container, in Docker's form
// (https://docs.docker.com/engine/security/seccomp/). It is the outline of the
// filter that the agent gives every program, and has to let the agent make the
// one user namespace, so clone may have any flags here.
var profile = sync.OnceValues(func() (string, error) {
	allowed, refused, err := seccomp.Outline(runtime.GOARCH)
	if err != nil {
		return "", err
	}
	type rule struct {
		Names    []string `json:"names"`
		Action   string   `json:"action"`
		ErrnoRet *uint    `json:"errnoRet,omitempty"`
	}
	eperm, enosys := uint(unix.EPERM), uint(unix.ENOSYS)
	b, err := json.Marshal(map[string]any{
		"defaultAction":   "SCMP_ACT_ERRNO",
		"defaultErrnoRet": enosys,
		"architectures":   architectures[runtime.GOARCH],
		"syscalls": []rule{
			{Names: allowed, Action: "SCMP_ACT_ALLOW"},
			{Names: refused, Action: "SCMP_ACT_ERRNO", ErrnoRet: &eperm},
			// Said once more for engines that do not know defaultErrnoRet: a C
			// library goes back to older calls on ENOSYS alone.
			{Names: []string{"clone3", "openat2"}, Action: "SCMP_ACT_ERRNO", ErrnoRet: &enosys},
		},
	})
	return string(b), err
})
