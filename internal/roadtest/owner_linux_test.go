// SPDX-License-Identifier: Apache-2.0

package roadtest

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

	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/persistent"
)

// ownerDir names the state directory of this test binary when it is the owner of
// sandboxes, which is killed.
const ownerDir = "CAISSON_TEST_OWNER"

// owner says what it does, a line each.
type owner struct {
	*living

	mu sync.Mutex // a line at a time
}

// asOwner is the owner that another test of this binary kills.
func asOwner(t *testing.T, change ...func(*persistent.SandboxesOptions)) *owner {
	t.Helper()
	dir := os.Getenv(ownerDir)
	if dir == "" {
		t.Skip("another test starts it, and kills it")
	}
	return &owner{living: openLiving(t, dir, "gvisor", change...)}
}

func (o *owner) say(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Printf("\n"+format+"\n", args...)
}

// must waits for its end where something went wrong.
func (o *owner) must(err error) {
	if err != nil {
		o.say("fault %v", err)
		select {}
	}
}

// churn makes sandboxes, uses them and ends them, from three sides, until the kill.
func (o *owner) churn(t *testing.T, use func(id string)) {
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for {
				s, err := o.Create(t.Context(), o.key, persistent.Create{})
				o.must(err)
				use(s.ID)
				o.must(o.Handle(o.key, s.ID).Kill(t.Context()))
			}
		})
	}
	all.Wait()
}

// script runs one in a sandbox.
func (o *owner) script(t *testing.T, id, script string) {
	c := &session.Call{}
	c.Argv = []string{"sh", "-c", script}
	_, err := o.Handle(o.key, id).Exec(t.Context(), c, session.IO{})
	o.must(err)
}

// kill starts a test as the owner of dir, waits until it has made a few sandboxes,
// and kills it. kept is the sandbox of which it said what word is.
func kill(t *testing.T, test, dir, word string, env ...string) (kept string, made []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(append(os.Environ(), ownerDir+"="+dir), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(5*time.Minute, func() { cmd.Process.Kill() })
	defer late.Stop()
	want := 1 + rand.IntN(4)
	for in := bufio.NewScanner(out); in.Scan(); {
		said, rest, _ := strings.Cut(in.Text(), " ")
		switch said {
		case "fault", "FAIL", "---":
			t.Errorf("the owner says: %s", in.Text())
		case word:
			kept = rest
		case "made":
			if made = append(made, rest); len(made) == want {
				cmd.Process.Kill() // what it said before that is still to be read
			}
		}
	}
	cmd.Wait()
	if kept == "" || len(made) < want {
		t.Errorf("the owner had made %q, %s %q", made, word, kept)
	}
	return kept, made
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
func ends(t *testing.T, pid int, timeout time.Duration) bool {
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
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(timeout.Milliseconds()))
		if err != unix.EINTR {
			return n > 0
		}
	}
}
