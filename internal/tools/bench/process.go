// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// cold measures a one-shot of the process level, called from this process as a
// program that embeds caisson would, against the bare program: both from the
// call until everything has ended.
func (s *stage) cold(goal string, argv ...string) bench {
	return bench{fmt.Sprintf("process level, driver, %q, beside the bare program", argv), func(ctx context.Context) row {
		root, err := image.Host(ctx, image.HostOptions{Cache: s.path("images"), Targets: targets()})
		if err != nil {
			return row{notes: []string{err.Error()}}
		}
		defer root.Close()
		state := s.path("process")
		if err := os.Mkdir(state, 0o700); err != nil {
			return row{notes: []string{err.Error()}}
		}
		defer os.RemoveAll(state)
		d, n := process.New(process.Options{}), 0
		ours := func(ctx context.Context) (took, error) {
			n++
			res, err := d.Run(ctx, &sandbox.Spec{
				ID: fmt.Sprintf("sbx_bench%011d", n), Root: root.Sandbox(), Scratch: scratch(), User: sandbox.DefaultUser(),
				Limits: sandbox.DefaultLimits(), StateDir: state,
			}, &sandbox.Exec{Argv: argv, Dir: "/home/user", Env: []string{"PATH=/usr/bin:/bin"}})
			if err == nil && res.Status != sandbox.StatusSuccess {
				err = fmt.Errorf("%s ended with %s", argv[0], res.Status)
			}
			return took{}, err
		}
		bare := func(ctx context.Context) (took, error) {
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
			return took{}, cmd.Run()
		}
		p := interleave(ctx, 5*s.o.pairs, clocked(ours), clocked(bare)) // they are short
		r := p.row(goal)
		r.who = s.users[0].name
		return r
	}}
}

// clocked measures what runs in this process and its children.
func clocked(run once) once {
	return func(ctx context.Context) (took, error) {
		before, began := used(), time.Now()
		_, err := run(ctx)
		return took{time.Since(began), used() - before}, err
	}
}

// used is the CPU time of this process and of all that it has waited for.
func used() (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var ru unix.Rusage
		if err := unix.Getrusage(who, &ru); err == nil {
			sum += time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
		}
	}
	return sum
}

// bwrapFlags are bubblewrap's usual recipe for a one-shot on the host's
// toolchain. It has no limits, no system call filter and no Landlock.
var bwrapFlags = strings.Fields(`--unshare-all --die-with-parent --new-session --clearenv --cap-drop ALL --hostname sandbox
	--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --ro-bind /etc /etc
	--proc /proc --dev /dev --tmpfs /tmp --tmpfs /home/user --chdir /home/user --uid 1000 --gid 1000`)

// beside measures the whole command on the process level against the whole of
// bubblewrap.
func (s *stage) beside(u user, goal string, argv ...string) bench {
	return bench{fmt.Sprintf("whole run of %q on the process level, beside bwrap", argv), func(ctx context.Context) row {
		bwrap, err := exec.LookPath("bwrap")
		if err != nil {
			return row{goal: goal, who: u.name, notes: []string{fmt.Sprint("not measured: ", err)}}
		}
		theirs := func(ctx context.Context) *exec.Cmd {
			cmd := s.command(ctx, u, "caisson", append(append([]string{}, bwrapFlags...), append([]string{"--"}, argv...)...))
			cmd.Path, cmd.Args[0] = bwrap, "bwrap"
			return cmd
		}
		if out, err := theirs(ctx).CombinedOutput(); err != nil {
			return row{goal: goal, who: u.name, notes: []string{fmt.Sprintf("not measured: bwrap: %v: %s", err, bytes.TrimSpace(out))}}
		}
		p := interleave(ctx, s.o.pairs, timed(func(ctx context.Context) *exec.Cmd {
			return s.caisson(ctx, u, append([]string{"run", "--isolation", "process", "--"}, argv...)...)
		}), timed(theirs))
		r := p.row(goal)
		r.who = u.name
		return r
	}}
}
