// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// worn has a sandbox write a file of the host's through to the disk, and looks at
// how fast that grows. The host itself writes one first: a disk that is slower than
// what is allowed shows nothing.
func (s *suite) worn(ctx context.Context) finding {
	const maximum, room, window = 1 << 20, 2 << 20, 4 * time.Second
	work := filepath.Join(s.dir, "L12")
	if err := errors.Join(os.MkdirAll(work, 0o755), os.Chmod(work, 0o777)); err != nil {
		return unable(err)
	}
	defer os.RemoveAll(work)
	var here, held unix.Stat_t
	if err := errors.Join(unix.Stat(work, &here), unix.Stat(s.State, &held)); err != nil {
		return unable(err)
	}
	allowed := func(began time.Time) int64 { return room + int64(2.5*maximum*time.Since(began).Seconds()) }
	sc := s.begin(ctx, func(c *session.Call) {
		limited(func(l *sandbox.Limits) { l.IO = maximum }, sandbox.LimitIO)(c)
		c.Workspace = &policy.MountWish{Source: work, Target: probe.AtWorkspace, Access: sandbox.ReadWrite, Shared: true}
	}, probe.ModeWear, probe.AtWorkspace+"/worn")
	defer sc.end()
	if err := sc.wait(probe.CaseReady); err != nil {
		return unable(err)
	}
	if here.Dev != held.Dev {
		return finding{verdict: NotApplicable, reason: "temporary files lie on another disk than the state directory, whose disk is slowed down", mend: "set TMPDIR"}
	}
	began := time.Now()
	for time.Since(began) < window {
		if n := grown(filepath.Join(work, "worn")); n > allowed(began) {
			return breach("%d MiB were on the disk after %.1f s, where %d MiB a second are allowed", n>>20, time.Since(began).Seconds(), maximum>>20)
		}
		select {
		case <-sc.done:
			return unable(sc.why())
		case <-ctx.Done():
			return unable(ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	n := grown(filepath.Join(work, "worn"))
	sc.end()
	for _, t := range sc.out.Of("wear") {
		return unable(fmt.Errorf("writing ended after %s bytes: %s", t.What, t.Error))
	}
	took, err := write(filepath.Join(work, "ours"), allowed(began))
	switch {
	case err != nil:
		return unable(err)
	case n == 0:
		return finding{verdict: Unclear, reason: "it wrote nothing"}
	case took > window:
		return finding{verdict: Unclear, reason: fmt.Sprintf("this disk is too slow to tell: it took %.1f s without a limit", took.Seconds())}
	}
	return pass()
}

func grown(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}

// write is what the probe does, for n bytes.
func write(name string, n int64) (time.Duration, error) {
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	began := time.Now()
	for piece := make([]byte, 256<<10); n > 0; n -= int64(len(piece)) {
		if _, err := f.Write(piece); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// noisy has a sandbox with a fifth of a processor spin in many processes, and another,
// which is no attacker, answer: before, meanwhile and afterwards. What else a machine
// does makes it slow all the time, or now and then: who spins without a limit makes it slow
// each time.
func (s *suite) noisy(ctx context.Context) finding {
	quiet := s.begin(ctx, nil, probe.ModeQuiet)
	defer quiet.end()
	if err := quiet.wait(probe.CaseReady); err != nil {
		return unable(err)
	}
	var alone, beside time.Duration
	for range 6 {
		var err error
		if alone, beside, err = s.besideNoise(ctx, quiet); err != nil {
			return unable(err)
		}
		if beside <= 3*alone+30*time.Millisecond {
			return pass()
		}
	}
	return breach("a neighbour answered within %d ms, and within %d beside it (all but one of a hundred answers)", alone.Milliseconds(), beside.Milliseconds())
}

// besideNoise is how slow quiet is without the noise, and with it.
func (s *suite) besideNoise(ctx context.Context, quiet *scene) (alone, beside time.Duration, err error) {
	const maximum, processes = 0.2, 128
	before, err := quiet.slowest(ctx)
	if err != nil {
		return 0, 0, err
	}
	set := limited(func(l *sandbox.Limits) { l.CPUs, l.Processes, l.Memory = maximum, 2*processes, 2<<30 },
		sandbox.LimitCPUs, sandbox.LimitProcesses, sandbox.LimitMemory)
	noise := s.begin(ctx, set, probe.ModeNoise, strconv.Itoa(processes))
	defer noise.end()
	defer noise.stop()
	if err := noise.wait(probe.CaseReady); err != nil {
		return 0, 0, err
	}
	if beside, err = quiet.slowest(ctx); err != nil {
		return 0, 0, err
	}
	noise.stop() // asked to end, it would take its time, with a fifth of a processor for all of them
	noise.end()
	after, err := quiet.slowest(ctx)
	return max(before, after), beside, err
}

// slowest asks a quiet probe a hundred times and is how long the second slowest answer
// took: of fewer, the slowest, where it takes long.
func (sc *scene) slowest(ctx context.Context) (time.Duration, error) {
	const asked, longest = 100, 4 * time.Second
	var took []time.Duration
	for first := time.Now(); len(took) < asked && (len(took) < 3 || time.Since(first) < longest); {
		before, began := sc.out.Size(), time.Now()
		if _, err := sc.enter.Write([]byte("\n")); err != nil {
			return 0, sc.why()
		}
		for sc.out.Size() == before {
			select {
			case <-sc.done:
				return 0, sc.why()
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(200 * time.Microsecond):
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[(len(took)*99+99)/100-1], nil
}
