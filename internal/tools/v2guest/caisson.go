// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// answer is what caisson run --json prints, as far as the checks look at it.
type answer struct {
	sandbox.Result
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

func checks() []check {
	everywhere := func(host) bool { return true }
	bare := func(w host) bool { return !w.delegated }
	rooted := func(w host) bool { return w.as == asRoot }
	session := func(w host) bool { return w.as == asSession }
	tiny := func(w host) bool { return w.init == "tiny" && w.as == asRoot }
	const linux, product = "internal/linux/", "cmd/caisson"
	return []check{
		{"world", everywhere, ".", checkHost},
		// The session's tests would all skip: it is caisson that asks for a scope.
		{"cgroup tests", func(w host) bool { return w.delegated && w.as != asSession }, linux + "cgroup", checkTests("cgroup", 10)},
		{"scope tests", session, linux + "scope", checkTests("scope", 4)},
		{"idmap tests", rooted, linux + "idmap", checkTests("idmap", 5)},
		{"hostfacts tests", everywhere, linux + "hostfacts", checkTests("hostfacts", 8)},
		{"run", everywhere, product, on("gvisor", checkPlain)},
		{"memory kills", everywhere, product, on("gvisor", checkMemory)},
		{"cpus refused by name", bare, product, checkRefused},
		{"processes", everywhere, product, on("gvisor", checkProcesses)},
		{"disk", everywhere, product, on("gvisor", checkDisk)},
		{"run on the process level", everywhere, product, on("process", checkPlain)},
		{"memory kills on the process level", everywhere, product, on("process", checkMemory)},
		{"memory kills whom the kernel would spare", rooted, product, on("gvisor", checkSpared)},
		{"memory kills whom the kernel would spare on the process level", rooted, product, on("process", checkSpared)},
		{"processes on the process level", everywhere, product, on("process", checkProcesses)},
		{"disk on the process level", everywhere, product, on("process", checkDisk)},
		{"block I/O that others would feel", tiny, product, on("gvisor", checkWorn)},
		{"block I/O that others would feel on the process level", tiny, product, on("process", checkWorn)},
		{"service", func(w host) bool { return w.init == "systemd" && w.as == asRoot }, "internal/tools/pack", checkService},
		{"nothing left", everywhere, ".", checkNothingLeft},
	}
}

// on makes a check of one level.
func on(level string, run func(context.Context, *vm, host, ...string) error) func(context.Context, *vm, host) error {
	return func(ctx context.Context, g *vm, w host) error { return run(ctx, g, w, "--isolation", level) }
}

// slow is for how long one run may take on an emulated processor.
const slow = 4 * time.Minute

// caisson runs a piece of Python and reads the answer.
func caisson(ctx context.Context, g *vm, w host, source string, flags ...string) (*answer, outcome, error) {
	return caissonBy(ctx, g, w, nil, source, flags...)
}

// caissonBy is caisson started by a command.
func caissonBy(ctx context.Context, g *vm, w host, by []string, source string, flags ...string) (*answer, outcome, error) {
	argv := append(append(by, "./caisson", "run", "--json", "--timeout", "3m"), flags...)
	o, err := execIn(ctx, g, w, slow, append(argv, "--", "python3", "-c", source)...)
	if err != nil {
		return nil, o, err
	}
	var a answer
	if err := json.Unmarshal(bytes.TrimSpace(o.stdout), &a); err != nil {
		return nil, o, fmt.Errorf("--json printed something else: %w\n%s", err, o)
	}
	return &a, o, nil
}

func checkPlain(ctx context.Context, g *vm, w host, flags ...string) error {
	a, o, err := caisson(ctx, g, w, "print(6*7)", flags...)
	if err != nil {
		return err
	}
	if a.Status != sandbox.StatusSuccess || a.Stdout != "42\n" || o.code != 0 {
		return fmt.Errorf("no success\n%s", o)
	}
	how := a.Posture.Limits[sandbox.LimitMemory]
	if w.delegated && how != sandbox.Enforced {
		return fmt.Errorf("memory is %q, want it enforced\n%s", how, o)
	}
	// A default that cannot be enforced is shown as what it is.
	if !w.delegated && how != sandbox.Emulated && how != sandbox.Off {
		return fmt.Errorf("memory is %q, without delegation\n%s", how, o)
	}
	return nil
}

func checkMemory(ctx context.Context, g *vm, w host, flags ...string) error {
	flags = append(flags, "--memory", "96MiB")
	if !w.delegated {
		flags = append(flags, "--best-effort") // without, it is refused: checkRefused
	}
	a, o, err := caisson(ctx, g, w, "b = bytearray(b'x') * (400 << 20)\nprint('survived')", flags...)
	if err != nil {
		return err
	}
	if a.Status != sandbox.StatusResourceExceeded || a.Resource != sandbox.LimitMemory || o.code != 137 || strings.Contains(a.Stdout, "survived") {
		return fmt.Errorf("the memory limit did not end it\n%s", o)
	}
	return nil
}

// checkSpared is checkMemory of an owner that the kernel does not kill, and runs before all
// others: no group could be held to its limits by killing what has that from it. As a
// real-time process it would not be held to a part of a processor either, here, where the
// kernel has no groups of these.
func checkSpared(ctx context.Context, g *vm, w host, flags ...string) error {
	by := []string{"sh", "-c", `echo -1000 > /proc/self/oom_score_adj && exec chrt --fifo 10 "$@"`, "sh"}
	const source = "print(open('/proc/self/oom_score_adj').read().strip(), open('/proc/self/stat').read().split()[40], flush=True)\nb = bytearray(b'x') * (400 << 20)"
	a, o, err := caissonBy(ctx, g, w, by, source, append(flags, "--memory", "96MiB")...)
	if err != nil {
		return err
	}
	if a.Status != sandbox.StatusResourceExceeded || a.Resource != sandbox.LimitMemory || o.code != 137 || a.Stdout != "0 0\n" {
		return fmt.Errorf("the memory limit did not end it, or it was what its owner was\n%s", o)
	}
	return nil
}

// checkRefused: a written limit that cannot be enforced refuses the run, and
// says which.
func checkRefused(ctx context.Context, g *vm, w host) error {
	for limit, value := range map[string]string{"cpus": "0.5", "memory": "96MiB"} {
		o, err := execIn(ctx, g, w, slow, "./caisson", "run", "--"+limit, value, "--", "true")
		if err != nil {
			return err
		}
		if o.code != 125 || !bytes.Contains(o.stderr, []byte("limit "+limit)) {
			return fmt.Errorf("want exit code 125 and %s named\n%s", limit, o)
		}
	}
	return nil
}

const forks = `
import os, time
n = 0
try:
    for n in range(60):
        if os.fork() == 0:
            time.sleep(600)
except OSError as e:
    print(n < 20 and e.strerror)
`

func checkProcesses(ctx context.Context, g *vm, w host, flags ...string) error {
	a, o, err := caisson(ctx, g, w, forks, append(flags, "--processes", "16")...)
	if err != nil {
		return err
	}
	if a.Stdout != "Resource temporarily unavailable\n" && a.Resource != sandbox.LimitProcesses {
		return fmt.Errorf("60 processes came through a limit of 16\n%s", o)
	}
	return nil
}

const fill = `
try:
    with open('big', 'wb') as f:
        for _ in range(64):
            f.write(bytes(1 << 20))
    print('written')
except OSError as e:
    print(e.strerror)
`

func checkDisk(ctx context.Context, g *vm, w host, flags ...string) error {
	a, o, err := caisson(ctx, g, w, fill, append(flags, "--disk", "16MiB")...)
	if err != nil {
		return err
	}
	if a.Stdout != "No space left on device\n" && a.Resource != sandbox.LimitDisk {
		return fmt.Errorf("64 MiB went into a disk of 16\n%s", o)
	}
	return nil
}

// checkWorn attacks: only version 2 slows a sandbox's block I/O down, on a disk, which
// the guest's root is not.
func checkWorn(ctx context.Context, g *vm, w host, flags ...string) error {
	const line = `mkdir -p -m 700 /scratch/worn && CAISSON_STATE=/scratch/worn ./caisson attack --case L12 --json "$@"`
	o, err := execIn(ctx, g, w, slow, append([]string{"sh", "-c", line, "sh"}, flags...)...)
	if err != nil {
		return err
	}
	var report struct{ Cases []struct{ Verdict string } }
	if err := json.Unmarshal(o.stdout, &report); err != nil || o.code != 0 || len(report.Cases) != 1 || report.Cases[0].Verdict != "pass" {
		return fmt.Errorf("L12 did not pass\n%s", o)
	}
	return nil
}

// checkNothingLeft looks as root, whatever user ran.
func checkNothingLeft(ctx context.Context, g *vm, w host) error {
	w.as = asRoot
	o, err := execIn(ctx, g, w, time.Minute, "sh", "-c", `
ps -eo pid,ppid,user,args | grep -i -E 'caisson|runsc' | grep -v -e grep -e ' sh -c'
find /sys/fs/cgroup -type d -name 'caisson*'
grep caisson /proc/mounts
find /tmp /var/tmp /run /dev/shm -xdev -name '*caisson*' 2>/dev/null
true`)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(o.stdout)) > 0 {
		return fmt.Errorf("left behind:\n%s", o.stdout)
	}
	return nil
}
