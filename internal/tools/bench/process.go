// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// level is the process level, called from this process as a program that embeds
// caisson would.
type level struct {
	driver *process.Driver
	root   *image.Root
	state  string
	n      atomic.Int64
	argv   []string
}

func (s *stage) level(ctx context.Context, argv []string) (l *level, end func(), err error) {
	l = &level{driver: process.New(process.Options{}), state: s.path("process"), argv: argv}
	if l.root, err = image.Host(ctx, image.HostOptions{Cache: s.path("images"), Targets: targets()}); err != nil {
		return nil, nil, err
	}
	if err := os.Mkdir(l.state, 0o700); err != nil {
		l.root.Close()
		return nil, nil, err
	}
	return l, func() { os.RemoveAll(l.state); l.root.Close() }, nil
}

// spec is of a sandbox with every default.
func (l *level) spec() *sandbox.Spec {
	return &sandbox.Spec{
		ID: fmt.Sprintf("sbx_bench%011d", l.n.Add(1)), Root: l.root.Sandbox(), Scratch: scratch(), User: sandbox.DefaultUser(),
		Limits: sandbox.DefaultLimits(), StateDir: l.state,
	}
}

func (l *level) exec() *sandbox.Exec {
	return &sandbox.Exec{Argv: l.argv, Dir: "/home/user", Env: []string{"PATH=/usr/bin:/bin"}}
}

// ended says whether a run went well.
func (l *level) ended(res *sandbox.Result, err error) error {
	if err == nil && res.Status != sandbox.StatusSuccess {
		err = fmt.Errorf("%s ended with %s", l.argv[0], res.Status)
	}
	return err
}

// run is a one-shot, bare the program by itself.
func (l *level) run(ctx context.Context) (took, error) {
	return took{}, l.ended(l.driver.Run(ctx, l.spec(), l.exec()))
}

func (l *level) bare(ctx context.Context) (took, error) {
	cmd := exec.CommandContext(ctx, l.argv[0], l.argv[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin"}
	return took{}, cmd.Run()
}

// ahead is a run in a sandbox that was made ahead. Its time is from the call to
// the result; what it took to make and to take away counts as processor time.
func (l *level) ahead(ctx context.Context) (t took, err error) {
	before := used()
	p, err := l.driver.Prepare(ctx, l.spec())
	if err != nil {
		return took{}, err
	}
	began := time.Now()
	err = l.ended(p.Run(ctx, l.exec()))
	t.wall = time.Since(began)
	err = errors.Join(err, p.Destroy(ctx))
	t.cpu = used() - before
	return t, err
}

// cold measures a one-shot of the process level against the bare program: both
// from the call until everything has ended.
func (s *stage) cold(goal string, argv ...string) bench {
	return s.besideBare("driver", goal, argv, func(l *level) once { return clocked(l.run) })
}

// pooled measures what a pool's user waits for.
func (s *stage) pooled(goal string, argv ...string) bench {
	return s.besideBare("made ahead", goal, argv, func(l *level) once { return l.ahead })
}

func (s *stage) besideBare(how, goal string, argv []string, ours func(*level) once) bench {
	return bench{fmt.Sprintf("process level, %s, %q, beside the bare program", how, argv), func(ctx context.Context) row {
		l, end, err := s.level(ctx, argv)
		if err != nil {
			return row{notes: []string{err.Error()}}
		}
		defer end()
		p := interleave(ctx, 5*s.o.pairs, ours(l), clocked(l.bare)) // they are short
		r := p.row(goal)
		r.who = s.users[0].name
		return r
	}}
}

// clients is how many ask for runs at the same time, and each so often.
const clients, each = 4, 25

// rate measures runs in a row by several clients at once.
func (s *stage) rate(goal string, argv ...string) bench {
	return s.rateOf("driver", goal, argv, func(l *level) once { return clocked(atOnceOf(l.run)) })
}

// pooledRate is rate with sandboxes that others make meanwhile, and take away.
// The processors do all of it, so that it cannot be far above rate.
func (s *stage) pooledRate(goal string, argv ...string) bench {
	return s.rateOf("made ahead", goal, argv, func(l *level) once { return clocked(l.supplied) })
}

func (s *stage) rateOf(how, goal string, argv []string, ours func(*level) once) bench {
	return bench{fmt.Sprintf("process level, %s, %q, runs per second of %d clients, beside the bare program", how, argv, clients), func(ctx context.Context) row {
		l, end, err := s.level(ctx, argv)
		if err != nil {
			return row{notes: []string{err.Error()}}
		}
		defer end()
		p := interleave(ctx, s.o.rounds, ours(l), clocked(atOnceOf(l.bare)))
		r := p.row(goal)
		r.who = s.users[0].name
		if len(p.ours) > 0 {
			r.ours, r.theirs = perSecond(p.ours), perSecond(p.theirs)
			r.ratio, r.cpu = fmt.Sprintf("%.2f (%.2f)", 1/p.ratio(), 1/p.paired()), p.cpu(clients*each)
		}
		return r
	}}
}

// supplied has every client run its times in sandboxes that two makers have made,
// and waits until the last is gone.
func (l *level) supplied(ctx context.Context) (took, error) {
	ready, makers := make(chan sandbox.Prepared, clients), 2
	failed := make(chan error, 2*clients*each)
	var all sync.WaitGroup
	for range makers {
		all.Go(func() {
			for range clients * each / makers {
				p, err := l.driver.Prepare(ctx, l.spec())
				failed <- err
				ready <- p
			}
		})
	}
	_, err := atOnceOf(func(ctx context.Context) (took, error) {
		p := <-ready
		if p == nil {
			return took{}, errors.New("there is no sandbox")
		}
		err := l.ended(p.Run(ctx, l.exec()))
		all.Go(func() { failed <- p.Destroy(ctx) })
		return took{}, err
	})(ctx)
	all.Wait()
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	return took{}, err
}

// atOnceOf has every client run one its times.
func atOnceOf(one once) once {
	return func(ctx context.Context) (took, error) {
		errs := make(chan error, clients)
		for range clients {
			go func() {
				var err error
				for range each {
					_, e := one(ctx)
					err = errors.Join(err, e)
				}
				errs <- err
			}()
		}
		var err error
		for range clients {
			err = errors.Join(err, <-errs)
		}
		return took{}, err
	}
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
