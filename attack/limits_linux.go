// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// finding is what a scene of its own comes to.
type finding struct {
	verdict      Verdict
	reason, mend string
}

func pass() finding { return finding{verdict: Pass} }

func breach(format string, args ...any) finding {
	return finding{verdict: Breach, reason: fmt.Sprintf(format, args...)}
}

func unable(err error) finding {
	v, reason, mend := notRun(err)
	return finding{verdict: v, reason: reason, mend: mend}
}

// limited sets limits as a caller would who insists on them.
func limited(set func(*sandbox.Limits), names ...sandbox.LimitName) func(*session.Call) {
	return func(c *session.Call) {
		c.Limits.Explicit = map[sandbox.LimitName]bool{}
		set(&c.Limits)
		for _, n := range names {
			c.Limits.Explicit[n] = true
		}
	}
}

// scenes are the cases that need a sandbox of their own.
func scenes() map[string]func(*suite, context.Context) finding {
	return map[string]func(*suite, context.Context) finding{
		"F07": (*suite).collectLinks,
		"F10": (*suite).hostileImages,
		"F11": (*suite).redirectingImages,
		"L10": (*suite).busy,
		"L11": (*suite).imageBomb,
		"L12": (*suite).worn,
		"L13": (*suite).noisy,
		"F20": (*suite).placedLinks,
		"F23": (*suite).ownPolicy,
		"F24": (*suite).releasedNames,
		"K18": (*suite).attackAgent,
		"L01": (*suite).manyProcesses,
		"L02": (*suite).muchMemory,
		"L03": (*suite).muchDisk,
		"L04": (*suite).muchOutput,
		"L05": (*suite).stubborn,
		"L06": (*suite).daemon,
		"L08": (*suite).killed,
		"L09": (*suite).manyFiles,
		"S05": (*suite).misplacedSecret,
		"S06": (*suite).foreignCredential,
		"N02": (*suite).oddAddresses,
		"N05": (*suite).ownAddresses,
		"N06": (*suite).besideTCP,
		"N07": (*suite).tunnel,
		"N08": (*suite).rebinding,
		"N09": (*suite).oddNames,
		"N10": (*suite).likeNames,
		"N11": (*suite).anotherHost,
		"N12": (*suite).pinned,
		"N13": (*suite).onwards,
		"N14": (*suite).withoutProxy,
		"N15": (*suite).emptyList,
		"N16": (*suite).control,
		"N17": (*suite).swapped,
		"N18": (*suite).flood,
		"N19": (*suite).oneLocalPort,
		"V01": (*suite).siblings,
		"V02": (*suite).leftovers,
		"V03": (*suite).tampered,
		"P12": (*suite).records,
	}
}

// manyProcesses asks for five times what is allowed, and the host counts.
func (s *suite) manyProcesses(ctx context.Context) finding {
	const maximum, want = 32, 160
	set := limited(func(l *sandbox.Limits) { l.Processes, l.Memory = maximum, 2<<30 }, sandbox.LimitProcesses, sandbox.LimitMemory)
	sc := s.begin(ctx, func(c *session.Call) {
		set(c)
		c.BestEffort = true // about the memory; the posture says of the processes
	}, probe.ModeProcesses, strconv.Itoa(want))
	if err := sc.wait(probe.CaseReady); err != nil {
		sc.end()
		if sc.res != nil && sc.res.Resource == sandbox.LimitProcesses {
			return pass()
		}
		return unable(err)
	}
	tasks := 0
	for _, p := range s.mine() {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid))
		tasks += len(entries)
	}
	sc.end()
	if sc.res != nil && sc.res.Posture.Limits[sandbox.LimitProcesses] == sandbox.Off {
		return finding{verdict: NotApplicable, reason: "processes are not limited on this host", mend: "caisson doctor"}
	}
	made := sc.out.Of(probe.CaseReady)[0].Count
	// The level's own tasks come on top: gVisor has a host process for each
	// process inside, and threads of its own.
	const own = 512
	if made > maximum || tasks > 2*maximum+own {
		return breach("%d processes were made where %d are allowed; the host counted %d tasks", made, maximum, tasks)
	}
	return pass()
}

// muchMemory takes three times what is allowed, of several kinds.
func (s *suite) muchMemory(ctx context.Context) finding {
	const maximum, slack = 128 << 20, 96 << 20
	// Of a machine the host counts all: its kernel, and the monitor. How much that may be it
	// says itself (docs/vm.md); what programs had is held against the limit as elsewhere.
	own := int64(slack)
	if s.Copies {
		own = 384 << 20
	}
	for _, kind := range []string{"anonymous", "memfd", "shm", "sockets", "datagrams"} {
		sc := s.begin(ctx, limited(func(l *sandbox.Limits) { l.Memory = maximum }, sandbox.LimitMemory), probe.ModeMemory, kind, strconv.Itoa(3*maximum))
		err := sc.wait(probe.CaseReady)
		sc.end()
		got := int64(0)
		for _, t := range append(sc.out.Of("memory"), sc.out.Of(probe.CaseReady)...) {
			got = max(got, t.Count)
		}
		switch {
		case got > maximum+slack:
			return breach("%s: %d MiB were had where %d are allowed", kind, got>>20, maximum>>20)
		case sc.res == nil:
			return unable(sc.why())
		case err != nil && sc.res.Resource != sandbox.LimitMemory:
			return unable(fmt.Errorf("%s: %w", kind, err))
		case sc.res.MemoryPeakBytes != nil && *sc.res.MemoryPeakBytes > maximum+own:
			return breach("%s: the peak was %d MiB where %d are allowed", kind, *sc.res.MemoryPeakBytes>>20, maximum>>20)
		}
	}
	return pass()
}

// muchDisk fills each writable directory with bytes, with holes, and with files.
func (s *suite) muchDisk(ctx context.Context) finding {
	const disk, tmp, files = 24 << 20, 8 << 20, 2000
	sc := s.begin(ctx, limited(func(l *sandbox.Limits) { l.Disk, l.Tmp, l.Inodes = disk, tmp, files }, sandbox.LimitDisk, sandbox.LimitTmp, sandbox.LimitInodes),
		probe.ModeDisk, strconv.Itoa(4*disk), strconv.Itoa(4*files), "/home/user", "/tmp")
	err := sc.wait(probe.CaseReady)
	sc.end()
	if err != nil {
		return unable(err)
	}
	total := map[string]int64{}
	for _, t := range sc.out.Of("disk") {
		what, dir, _ := strings.Cut(t.What, " ")
		if strings.HasPrefix(t.What, "bytes in") {
			what, dir = "holes", t.What[strings.LastIndex(t.What, " ")+1:]
		}
		total[what+" "+dir] = t.Count
	}
	const slack = 2 << 20 // what is written a megabyte at a time
	for _, x := range []struct {
		dir     string
		maximum int64
	}{{"/home/user", disk}, {"/tmp", tmp}} {
		for _, what := range []string{"bytes", "holes"} {
			if got := total[what+" "+x.dir]; got > x.maximum+slack {
				return breach("%s: %d MiB (%s) were written where %d are allowed", x.dir, got>>20, what, x.maximum>>20)
			}
		}
	}
	if got := total["files /home/user"] + total["files /tmp"]; got > files+files/10 {
		return breach("%d files were made where %d are allowed", got, files)
	}
	return pass()
}

// muchOutput writes more than is kept: no lines, controls, no text.
func (s *suite) muchOutput(ctx context.Context) finding {
	const maximum, want = 64 << 10, 8 << 20
	sc := s.begin(ctx, limited(func(l *sandbox.Limits) { l.Output = maximum }, sandbox.LimitOutput), probe.ModeOutput, strconv.Itoa(want))
	sc.end()
	switch {
	case sc.res == nil || sc.err != nil || sc.res.Status == sandbox.StatusDenied:
		return unable(sc.why())
	case sc.out.Size() > maximum:
		return breach("%d bytes came where %d are allowed", sc.out.Size(), maximum)
	case sc.res.Truncated["stdout"] == 0:
		return finding{verdict: Unclear, reason: "nothing was cut: the probe wrote too little"}
	}
	return pass()
}

// stubborn ends within the wall clock, whatever it does to signals.
func (s *suite) stubborn(ctx context.Context) finding {
	const wall, slack = 700 * time.Millisecond, 5 * time.Second
	for _, mode := range []string{probe.ModeStubborn, probe.ModeStopped} {
		sc := s.begin(ctx, limited(func(l *sandbox.Limits) { l.Wall = wall }, sandbox.LimitWall), mode)
		var list []*process
		if err := sc.wait(probe.CaseReady); err == nil {
			list = s.mine()
		} else if sc.res == nil || sc.res.Status != sandbox.StatusTimeout {
			sc.end()
			return unable(err)
		}
		helped := sc.over(wall + slack)
		sc.enter.Close()
		switch {
		case helped:
			return breach("%s: it outlived the %s that are allowed, and was killed by this suite", mode, wall)
		case sc.res == nil:
			return unable(sc.why())
		case sc.res.Status != sandbox.StatusTimeout:
			return breach("%s: the wall clock did not end it: %s", mode, sc.why())
		}
		if f := s.gone(list); f.verdict != Pass {
			return f
		}
	}
	return pass()
}

// daemon leaves a process behind that is in no session of its parent's.
func (s *suite) daemon(ctx context.Context) finding {
	sc := s.begin(ctx, nil, probe.ModeDaemon)
	if err := sc.wait(probe.CaseReady); err != nil {
		sc.end()
		return unable(err)
	}
	if why := sc.out.Of(probe.CaseReady)[0].Error; why != "" {
		sc.end()
		return finding{verdict: Unclear, reason: "no daemon could be started: " + why}
	}
	list := s.mine()
	sc.end()
	if len(list) == 0 {
		return finding{verdict: Unclear, reason: "the host sees no process of the sandbox"}
	}
	return s.gone(list)
}

// gone looks for processes of a sandbox that has ended, and ends them.
func (s *suite) gone(list []*process) finding {
	left := settle(list, 5*time.Second)
	kill(left)
	if len(left) > 0 {
		_ = left[0].look()
		return breach("%s is still there", left[0])
	}
	return pass()
}

// killed kills a second caisson in the middle of its run. What no dead process can
// take away, such as its control group, the next caisson does.
func (s *suite) killed(context.Context) finding {
	if s.Again == nil {
		return finding{verdict: NotApplicable, reason: "this program does not start a second caisson"}
	}
	cmd := s.Again("run", "--isolation", s.Isolation, "--mount", s.Program+":"+probe.AtProbe, "--", probe.AtProbe, probe.Word, probe.ModeSleep, s.nonce)
	var out probeLog
	var errs tail
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return unable(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		return unable(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-out.Said(probe.CaseReady):
	case err := <-ended:
		return finding{verdict: Unclear, reason: fmt.Sprintf("the second caisson ended early: %v: %s", err, errs.text())}
	case <-time.After(probeTimeout):
		_ = cmd.Process.Kill()
		return finding{verdict: Unclear, reason: "the second caisson did not come to run"}
	}
	var list []*process
	for _, p := range s.mine() {
		if p.pid != cmd.Process.Pid {
			list = append(list, p)
		}
	}
	_ = cmd.Process.Kill()
	if len(list) == 0 {
		return finding{verdict: Unclear, reason: "the host sees no process of the sandbox"}
	}
	if f := s.gone(list); f.verdict != Pass {
		return f
	}
	next := s.Again("run", "--isolation", s.Isolation, "--", "true")
	if said, err := next.CombinedOutput(); err != nil {
		return finding{verdict: Unclear, reason: fmt.Sprintf("the next caisson does not run: %v: %.300s", err, said)}
	}
	return pass()
}

// manyFiles opens more descriptors than are allowed.
func (s *suite) manyFiles(ctx context.Context) finding {
	const maximum, want = 100, 1000
	sc := s.begin(ctx, limited(func(l *sandbox.Limits) { l.OpenFiles = maximum }, sandbox.LimitOpenFiles), probe.ModeFiles, strconv.Itoa(want))
	err := sc.wait(probe.CaseReady)
	sc.end()
	if err != nil {
		return unable(err)
	}
	if got := sc.out.Of(probe.CaseReady)[0].Count; got > maximum {
		return breach("%d descriptors were had where %d are allowed", got, maximum)
	}
	return s.quotas(ctx)
}

// withAgent runs the probe next to the guest agent, and collects what it leaves.
func (s *suite) withAgent(ctx context.Context, args ...string) (*scene, string, error) {
	dest, err := os.MkdirTemp(s.dir, "collected-")
	if err != nil {
		return nil, "", err
	}
	sc := s.begin(ctx, func(c *session.Call) { c.Collect = append(c.Collect, collectWish("out/**", dest)) }, args...)
	sc.end()
	return sc, dest, nil
}

// collectLinks looks for the canary, and for links, in what was collected.
func (s *suite) collectLinks(ctx context.Context) finding {
	sc, dest, err := s.withAgent(ctx, probe.ModeLinks, filepath.Join(s.out, "F07"))
	if err != nil {
		return unable(err)
	}
	if sc.res == nil {
		return unable(sc.why())
	}
	if name := holds(ctx, dest, s.token("F07")); name != "" {
		return breach("the collected file %s is the host's", name)
	}
	links := ""
	_ = filepath.WalkDir(dest, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSymlink != 0 {
			links = filepath.Base(path)
		}
		return nil
	})
	if links != "" {
		return breach("the link %s was made on the host", links)
	}
	if _, err := os.Stat(filepath.Join(dest, "plain")); err != nil && sc.err == nil {
		return finding{verdict: Unclear, reason: "nothing was collected: " + sc.why().Error()}
	}
	return pass()
}

// attackAgent judges what the probe did to the agent: it still answers.
func (s *suite) attackAgent(ctx context.Context) finding {
	sc, _, err := s.withAgent(ctx, probe.ModeAgent)
	if err != nil {
		return unable(err)
	}
	if sc.res == nil {
		if f := unable(sc.why()); f.verdict == NotApplicable {
			return f
		}
		return breach("the agent did not outlive it: %s", sc.why())
	}
	tried := sc.out.Of("K18")
	for _, t := range tried {
		if t.Got {
			return breach("%s: it worked", t.What)
		}
	}
	if len(tried) == 0 {
		return unable(sc.why())
	}
	if sc.res.Status != sandbox.StatusSuccess || len(sc.res.Uncollected) > 0 { // it was asked last
		return breach("the agent did not outlive it: %s", sc.why())
	}
	return pass()
}
