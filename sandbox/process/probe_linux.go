// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/landlock"
	"github.com/caisson-run/caisson/internal/linux/seccomp"
	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/sandbox"
)

// Probe says what this level can do on this host. It starts nothing.
func (d *Driver) Probe(context.Context) (sandbox.Capabilities, error) {
	release, major, minor := kernel()
	c := sandbox.Capabilities{
		Engine: "Linux " + release, Limits: d.limits(),
		ScratchInMemory: true, Terminal: true, CopyOnWrite: true, Changes: true, ReadWrite: true, LiveFiles: true, Masks: true, Images: true,
	}
	if _, err := seccomp.Untrusted(runtime.GOARCH); err != nil {
		c.Unusable = "this level runs on amd64 and arm64 only, this is " + runtime.GOARCH
	}
	if major < 5 || major == 5 && minor < 12 {
		c.Unusable, c.Remedy = "the kernel is "+release+", and this level needs mount_setattr(2)", "boot Linux 5.12 or newer"
	}
	var cores unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &cores) == nil && cores.Max == 0 {
		// See rlimits: 0 does not keep the kernel from what 1 does.
		c.Unusable = "core files are limited to 0 bytes here (ulimit -Hc), and not to 1, with which the kernel does not hand crashes to the host's handler"
		c.Remedy = "allow 1 (hard core in limits.conf, LimitCORE= in a unit)"
	}
	c.Notes = append(c.Notes, "code inside talks to this host's kernel itself; gvisor puts a kernel of its own in between")
	if abi := landlock.ABI(); abi < 2 {
		c.Notes = append(c.Notes, "the kernel has no Landlock that is of use here; everything else holds without it")
	} else if missing := landlock.Missing(abi); len(missing) > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("Landlock of this kernel (version %d) does not refuse %s; everything else holds", abi, strings.Join(missing, ", ")))
	}
	c.Executables = landlock.ABI() >= 2
	c.NoSurvival = sandbox.Clause{Enforcement: sandbox.Off, Detail: noSurvival}
	c.Network, c.TellsAttempts, c.Wire = true, true, sandbox.WireDevice
	if why, remedy := tun.Usable(); why != "" {
		c.Network, c.TellsAttempts, c.Wire = false, false, ""
		c.NoNetwork = sandbox.Clause{Enforcement: sandbox.Off, Detail: why, Remedy: remedy}
		c.Notes = append(c.Notes, "no network with an allow-list: "+why+" ("+remedy+")")
	}
	if euid != 0 {
		c.Notes = append(c.Notes, "without root the code has this user's uid on the host and, in a living sandbox, the same as the agent in it")
	}
	if h := d.host(); h != nil {
		c.Pause, _ = h.CanFreeze()
		c.Notes = append(c.Notes, h.Notes...)
	}
	return c, nil
}

// kernel is the running kernel's version.
func kernel() (release string, major, minor int) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", 0, 0
	}
	release = unix.ByteSliceToString(u.Release[:])
	_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor)
	return release, major, minor
}

// limits says how each limit holds here.
func (d *Driver) limits() map[sandbox.LimitName]sandbox.Clause {
	caisson := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by caisson"}
	rlimit := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by the kernel (rlimit)"}
	tmpfs := sandbox.Clause{Enforcement: sandbox.Enforced, Detail: "by tmpfs; scratch is memory here and counts as such, too"}
	l := map[sandbox.LimitName]sandbox.Clause{
		sandbox.LimitWall:      caisson,
		sandbox.LimitOutput:    caisson,
		sandbox.LimitCPUTime:   {Enforcement: sandbox.Enforced, Detail: "read several times a second"},
		sandbox.LimitProcesses: {Enforcement: sandbox.Enforced, Detail: "by the kernel, for the user namespace (rlimit) and where there is one the control group; limits_hit names it where that holds it, from 16 on"},
		sandbox.LimitOpenFiles: rlimit,
		sandbox.LimitFileSize:  rlimit,
		sandbox.LimitDisk:      tmpfs,
		sandbox.LimitInodes:    {Enforcement: sandbox.Enforced, Detail: "by tmpfs, for scratch; copy-on-write mounts count bytes only"},
		sandbox.LimitTmp:       tmpfs,
	}
	maps.Copy(l, d.groups.Limits())
	return l
}
