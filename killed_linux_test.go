// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

const ownerDir = "CAISSON_TEST_OWNER"

// TestOwner is what TestKilledOwner kills: it makes and ends sandboxes from three
// sides until then.
func TestOwner(t *testing.T) {
	dir := os.Getenv(ownerDir)
	if dir == "" {
		t.Skip("it is run by TestKilledOwner")
	}
	l := openLiving(t, dir, "gvisor")
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf("\n"+format+"\n", args...)
	}
	must := func(err error) {
		if err != nil {
			say("fault %v", err)
			select {}
		}
	}
	s, _, err := l.Acquire(t.Context(), l.key, "paused", session.Create{})
	must(err)
	l.sh(t, s.ID, "date +%N >> ~/file; cat ~/file")
	s, err = l.Pause(t.Context(), l.key, s.ID)
	must(err)
	say("paused %s", s.ID)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for {
				s, err := l.Create(t.Context(), l.key, session.Create{})
				must(err)
				say("made %s", s.ID)
				c := &session.Call{}
				c.Argv = []string{"sh", "-c", "sleep 1000 & exit 0"}
				_, err = l.Exec(t.Context(), l.key, s.ID, c, session.IO{})
				must(err)
				must(l.Kill(t.Context(), l.key, s.ID))
			}
		})
	}
	all.Wait()
}

// An owner that is killed at any moment leaves nothing that runs, every sandbox
// that anybody has heard of is said to have ended, and a paused one goes on.
func TestKilledOwner(t *testing.T) {
	times := 1
	if n, err := strconv.Atoi(os.Getenv("CAISSON_TEST_KILLS")); err == nil {
		times = n
	}
	dir := filepath.Join(t.TempDir(), "state")
	for i := range times {
		made, paused := killOwner(t, dir)
		if t.Failed() {
			return
		}
		nobodyHas(t, dir)
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			l := openLiving(t, dir, "gvisor")
			for _, id := range made {
				_, err := l.Get(t.Context(), l.key, id)
				if !errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(err.Error(), "it has ended: ") {
					t.Errorf("of a sandbox that was made is known: %v", err)
				}
			}
			s, err := l.Resume(t.Context(), l.key, paused, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Fields(l.sh(t, s.ID, "cat ~/file")); len(got) != i+1 {
				t.Errorf("the paused one's file has %d lines, want %d", len(got), i+1)
			}
			if _, err := l.Pause(t.Context(), l.key, s.ID); err != nil {
				t.Fatal(err)
			}
			page, err := l.List(t.Context(), l.key, session.Filter{States: []registry.State{registry.Running}})
			if err != nil || len(page.Sandboxes) != 0 {
				t.Errorf("running after the kill: %v, %v", page, err)
			}
			if left, _ := os.ReadDir(filepath.Join(dir, "kept")); len(left) != 1 {
				t.Errorf("%d snapshots are kept, want 1", len(left))
			}
		})
	}
}

// killOwner starts an owner, waits for a few sandboxes, and kills it.
func killOwner(t *testing.T, dir string) (made []string, paused string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestOwner$")
	cmd.Env = append(os.Environ(), ownerDir+"="+dir, "TMPDIR="+t.TempDir()) // where it leaves what it cannot remove
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	defer late.Stop()
	want := 1 + rand.IntN(4)
	for in := bufio.NewScanner(out); in.Scan(); {
		word, rest, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "fault", "FAIL", "---":
			t.Errorf("the owner says: %s", in.Text())
		case "paused":
			paused = rest
		case "made":
			if made = append(made, rest); len(made) == want {
				cmd.Process.Kill() // what it said before that is still to be read
			}
		}
	}
	cmd.Wait()
	if paused == "" || len(made) < want {
		t.Errorf("the owner had made %q, paused %q", made, paused)
	}
	return made, paused
}

// nobodyHas waits until no process but this one has a file below dir. Nothing
// tells of another process's files, but the kernel tells of its end.
func nobodyHas(t *testing.T, dir string) {
	t.Helper()
	for {
		who := map[int]string{}
		links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, link := range links {
			name, err := os.Readlink(link)
			if err == nil && strings.HasPrefix(name, dir) && !strings.HasPrefix(link, "/proc/"+strconv.Itoa(os.Getpid())+"/") {
				who[processOf(link)] = name
			}
		}
		if len(who) == 0 {
			return
		}
		for pid, name := range who {
			if !ends(t, pid, time.Minute) {
				t.Fatalf("still open after the owner was killed: %s, by process %d", name, pid)
			}
		}
	}
}

// processOf is the process that a path in /proc is of.
func processOf(link string) int {
	pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
	return pid
}

// ends waits until a process has ended.
func ends(t *testing.T, pid int, patience time.Duration) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		if err != unix.EINTR {
			return n > 0
		}
	}
}
