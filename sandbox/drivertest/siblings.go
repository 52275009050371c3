// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// siblings tries to make processes that are children of the caller's parent, which may be
// the level's own process: no process waits for them, and the kernel does not end a
// sandbox before one has. One of them ends at once, the other lives and hears no signal.
// A level may refuse them.
const siblings = `
import ctypes, platform
clone = {'x86_64': 56, 'aarch64': 220}[platform.machine()]
for lives in (False, True):
    if ctypes.CDLL(None).syscall(clone, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) != 0: continue
    if lives:
        for n in range(1, 65):
            try: signal.signal(n, signal.SIG_IGN)
            except (OSError, ValueError): pass
        time.sleep(600)
    os._exit(0)
print('made', flush=True)
`

// testSiblings: a sandbox ends, by itself and by its deadline, whatever children it has
// given to the level.
func testSiblings(t *testing.T, s *suite, r road) {
	start := time.Now()
	w := s.fixture(t)
	w.run(t, r, "python3", "-I", "-S", "-c", prelude+siblings).ok(t)
	noZombies(t)

	w = s.fixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	x := w.exec("python3", "-I", "-S", "-c", prelude+siblings+"time.sleep(600)")
	out := newWatcher()
	x.Stdout = out
	go func() {
		out.wait(t, "made")
		cancel()
	}()
	if o := w.start(t, ctx, r, x); o.Signal != "SIGKILL" || o.Status != sandbox.StatusError {
		t.Errorf("ended by its context: %s", o.describe())
	}
	noZombies(t)
	if took := time.Since(start); took > runLimit {
		t.Errorf("it took %v", took)
	}
}

// noZombies waits until every child of ours was waited for.
func noZombies(t *testing.T) {
	t.Helper()
	until(t, "every child of ours that has ended is waited for", func() bool {
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range stats {
			b, _ := os.ReadFile(name) // gone meanwhile
			stat := string(b)
			fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
			if len(fields) > 1 && fields[0] == "Z" && fields[1] == strconv.Itoa(os.Getpid()) {
				return false
			}
		}
		return true
	})
}
