// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

var exitTests = []test{
	{name: "codes", run: testExitCodes},
	{name: "signals", run: testExitSignals},
	{name: "not found is 127", run: testNotFound},
	{name: "not executable is 126", run: testNotExecutable},
	{name: "figures are measured", run: testFigures},
}

func testExitCodes(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	r, end := s.lasting(t, r, w)
	defer end()
	for code, status := range map[int]sandbox.Status{0: sandbox.StatusSuccess, 1: sandbox.StatusError, 7: sandbox.StatusError, 137: sandbox.StatusError, 255: sandbox.StatusError} {
		o := w.run(t, r, "sh", "-c", "exit $0", itoa(code)).exited(t, code)
		if o.Status != status {
			t.Errorf("exit code %d is %q, want %q", code, o.Status, status)
		}
	}
}

func testExitSignals(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	r, end := s.lasting(t, r, w)
	defer end()
	for _, sig := range []string{"SEGV", "TERM", "KILL", "ABRT"} {
		// A first process may be shielded from its own signals; what code is
		// run as must not be.
		o := w.run(t, r, "sh", "-c", "kill -"+sig+" $$; exit 9")
		if o.Signal != "SIG"+sig || o.ExitCode != nil || o.Status != sandbox.StatusError || o.Resource != "" {
			t.Errorf("after SIG%s: %s", sig, o.describe())
		}
	}
}

func testNotFound(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	r, end := s.lasting(t, r, w)
	defer end()
	for _, name := range []string{"no-such-program", "/usr/bin/no-such-program", "./here", "/etc/passwd/x"} {
		w.run(t, r, name).exited(t, 127)
	}
}

func testNotExecutable(t *testing.T, s *suite, r road) {
	w := s.fixture(t)
	r, end := s.lasting(t, r, w)
	defer end()
	long := strings.Repeat("x", 300) // more than a name may have
	for _, name := range []string{"/etc/passwd", "/usr", long, "/bin/" + long} {
		w.run(t, r, name).exited(t, 126)
	}
}

func testFigures(t *testing.T, s *suite, r road) {
	const mib = 1 << 20
	o := s.fixture(t).run(t, r, "python3", "-I", "-S", "-c", `
b = bytearray(64 << 20)
for i in range(0, len(b), 4096): b[i] = 1
for i in range(12_000_000): pass
`).ok(t)
	// So much work takes some 300 ms. A clock of the sandbox's would not do: gVisor's
	// goes on while the host's processors do other work.
	const least = 80
	if o.WallMS < least {
		t.Errorf("wall %d ms, the work takes more than %d", o.WallMS, least)
	}
	// Absent is honest, 0 is not.
	if o.CPUMS != nil && (*o.CPUMS < least || *o.CPUMS > o.WallMS*4+2000) {
		t.Errorf("CPU %d ms, the work takes more than %d; wall %d ms", *o.CPUMS, least, o.WallMS)
	}
	if o.CPUMS == nil {
		s.need(t, sandbox.LimitCPUTime)
		s.needFigures(t, r)
		t.Error("CPU time can be limited but was not measured")
	}
	if o.MemoryPeakBytes != nil && (*o.MemoryPeakBytes < 60*mib || *o.MemoryPeakBytes > 400*mib) {
		t.Errorf("peak of memory %d MiB, it used 64", *o.MemoryPeakBytes/mib)
	}
}

// needFigures ends a test of what a sandbox uses, where that shows only in a sandbox that
// is not counted: a limit of its processor time is refused by name then.
func (s *suite) needFigures(t *testing.T, r road) {
	t.Helper()
	w := s.fixture(t, limit(func(l *sandbox.Limits) {
		l.CPUTime, l.Explicit = time.Minute, map[sandbox.LimitName]bool{sandbox.LimitCPUTime: true}
	}))
	_, err := r.run(timeout(t), w.spec, w.exec("true"))
	if errors.Is(err, sandbox.ErrUnsupported) && strings.Contains(err.Error(), string(sandbox.LimitCPUTime)) {
		s.lacks(t, err.Error())
	}
}
