// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// beat writes to files for as long as it lives, as two processes for each:
// a daemon of the old kind, twice forked in a session of its own, and one that
// ignores every signal it can.
const beat = `
def beating(path):
    for n in range(1, 65):
        try: signal.signal(n, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True:
        with open(path, 'ab', 0) as f: f.write(b'.')
        time.sleep(0.01)
for path in sys.argv[1:]:
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        beating(path)
end = time.monotonic() + 100
while not all(os.path.exists(p) and os.stat(p).st_size for p in sys.argv[1:]):
    if time.monotonic() > end: sys.exit('no heart beats')
    time.sleep(0.01)
print('beating', flush=True)
`

// hearts are files that beat writes to, seen from the host.
func (s *suite) hearts(t *testing.T) (dir string, inside []string, files []string) {
	t.Helper()
	s.needAccess(t, sandbox.ReadWrite)
	dir = s.path(t)
	for _, name := range []string{"a", "b"} {
		inside = append(inside, "/data/"+name)
		files = append(files, filepath.Join(dir, name))
	}
	return dir, inside, files
}

// stopped demands that nothing beats any more.
func stopped(t *testing.T, files []string) {
	t.Helper()
	before := beats(files)
	if before == 0 {
		t.Error("it never began")
	}
	<-time.After(300 * time.Millisecond) // thirty beats
	if after := beats(files); after != before {
		t.Errorf("it still runs: %d beats, then %d", before, after)
	}
}

// beats is how often it has beaten so far.
func beats(files []string) (n int64) {
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			n += info.Size()
		}
	}
	return n
}

// privately is where beat writes in a sandbox that shares no file with the host.
var privately = []string{"/tmp/a", "/tmp/b"}

// heart is a sandbox in which something beats. Whether it still does shows on the host: in
// files that both see, or, where mounts are copies, by the process that is the machine. As
// a program's output it looks for that process as soon as something beats.
type heart struct {
	*fixture
	t      *testing.T
	inside []string // files as the sandbox calls them
	files  []string // as the host does; nil where they are the sandbox's own
	out    *watcher
	seen   bool // the machine's process
}

func (s *suite) heart(t *testing.T) *heart {
	t.Helper()
	if s.copies {
		return &heart{fixture: s.fixture(t), t: t, inside: privately, out: newWatcher()}
	}
	dir, inside, files := s.hearts(t)
	return &heart{fixture: s.fixture(t, mount(t, dir, "/data", sandbox.ReadWrite)), t: t, inside: inside, files: files, out: newWatcher()}
}

func (h *heart) Write(b []byte) (int, error) {
	if h.files == nil && !h.seen && strings.Contains(h.out.String()+string(b), "beating") {
		h.seen = len(processesOf(h.t, h.spec.ID)) > 0
	}
	return h.out.Write(b)
}

// stopped demands that nothing beats any more.
func (h *heart) stopped(t *testing.T) {
	t.Helper()
	if h.files != nil {
		stopped(t, h.files)
		return
	}
	if !h.seen {
		t.Error("no process of this host was the machine")
	}
	if left := processesOf(t, h.spec.ID); len(left) > 0 {
		t.Errorf("the machine still runs: %q", left)
	}
}

// processesOf are the command lines of processes, but this one, that name a sandbox. A
// monitor may take no underscore in a name.
func processesOf(t *testing.T, id string) (lines []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		b, _ := os.ReadFile(file) // gone meanwhile
		words := strings.Split(string(b), "\x00")
		if slices.Contains(words, id) || slices.Contains(words, strings.ReplaceAll(id, "_", "-")) {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return lines
}
