// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// quotas has a sandbox take all that the kernel counts by user; a second one,
// which is no attacker, must then still get of it what it got before.
func (s *suite) quotas(ctx context.Context) finding {
	const want, few = 40_000, 2
	set := limited(func(l *sandbox.Limits) { l.OpenFiles = 4096 }, sandbox.LimitOpenFiles)
	quiet := func() (map[string]probe.Try, error) {
		sc := s.begin(ctx, set, probe.ModeQuota, strconv.Itoa(few))
		err := sc.wait(probe.CaseReady)
		sc.end()
		got := map[string]probe.Try{}
		for _, t := range sc.out.Of("quota") {
			got[t.What] = t
		}
		return got, err
	}
	before, err := quiet()
	if err != nil {
		return unable(err)
	}
	noisy := s.begin(ctx, set, probe.ModeQuota, strconv.Itoa(want))
	defer noisy.end()
	if err := noisy.wait(probe.CaseReady); err != nil {
		return unable(err)
	}
	now, err := quiet()
	if err != nil {
		return unable(err)
	}
	var lacking []string
	for what, t := range before {
		// Pipes are counted by uid alone, and an ordinary user's sandboxes have theirs.
		if what == "wide pipes" && os.Geteuid() != 0 {
			continue
		}
		if t.Count == few && now[what].Count < few {
			lacking = append(lacking, fmt.Sprintf("%s (%s)", what, now[what].Error))
		}
	}
	if len(lacking) > 0 {
		slices.Sort(lacking)
		return breach("one sandbox took what another needs: %q", lacking)
	}
	return pass()
}

// busy has a sandbox with a fifth of a processor spin in many threads, and looks
// at what the host's kernel counts for its processes. With less, gVisor's kernel
// takes half a minute to start on a busy machine.
func (s *suite) busy(ctx context.Context) finding {
	const maximum, threads, window = 0.2, 16, 2 * time.Second
	sc := s.begin(ctx, limited(func(l *sandbox.Limits) { l.CPUs = maximum }, sandbox.LimitCPUs), probe.ModeBusy, strconv.Itoa(threads))
	defer sc.end()
	if err := sc.wait(probe.CaseReady); err != nil {
		return unable(err)
	}
	began, before := time.Now(), spent(s.mine())
	select {
	case <-sc.done:
		return unable(sc.why())
	case <-ctx.Done():
		return unable(ctx.Err())
	case <-time.After(window):
	}
	used := (spent(s.mine()) - before).Seconds() / time.Since(began).Seconds()
	switch {
	case used > 2.5*maximum:
		return breach("%.2f processors were used where %.2f are allowed", used, maximum)
	case used < maximum/20:
		return finding{verdict: Unclear, reason: fmt.Sprintf("it used %.3f processors: this machine had none for it, or the host does not see it", used)}
	}
	return pass()
}

// spent is the processor time of processes.
func spent(list []*process) (sum time.Duration) {
	for _, p := range list {
		data, err := readProc(p.pid, "stat")
		_, rest, _ := cutLast(data, ") ")
		fields := bytes.Fields([]byte(rest))
		if err != nil || len(fields) < 13 {
			continue
		}
		const tick = time.Second / 100 // USER_HZ, of every port that this runs on
		for _, f := range fields[11:13] {
			n, _ := strconv.ParseInt(string(f), 10, 64)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// placedLinks has code inside leave links where the host writes what it collects:
// below a directory that both can write to (CVE-2026-46406).
func (s *suite) placedLinks(ctx context.Context) finding {
	work := filepath.Join(s.dir, "F20")
	if err := errors.Join(os.MkdirAll(work, 0o755), os.Chmod(work, 0o777)); err != nil {
		return unable(err)
	}
	before := listing(s.out)
	for _, dest := range []string{"collected", "kept"} {
		sc := s.begin(ctx, func(c *session.Call) {
			c.Workspace = &policy.MountWish{Source: work, Target: probe.AtWorkspace, Access: sandbox.ReadWrite, Shared: true}
			c.Collect = append(c.Collect, collectWish("out/**", filepath.Join(work, dest)))
		}, probe.ModePlaced, s.out)
		err := sc.wait(probe.CaseReady)
		sc.end()
		if listing(s.out) != before {
			return breach("what was collected into %s lies outside of it, where a link led", dest)
		}
		if err != nil {
			return unable(err)
		}
	}
	return pass()
}
