// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// oomFiles are where a sandbox's own control group counts what its memory limit has
// killed: cgroup v2, and v1.
var oomFiles = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// oomEvery is how often the agent looks where it is not told. What the agent itself started is looked for
// when it has ended, before its end is told.
const oomEvery = 100 * time.Millisecond

// oomWatch says once on the log that the memory limit has killed something. A nil one
// says nothing.
type oomWatch struct {
	file string
	base uint64
	once sync.Once
}

// newOOMWatch is nil where nothing counts.
func newOOMWatch(files []string) *oomWatch {
	for _, f := range files {
		if n, ok := oomKills(f); ok {
			return &oomWatch{file: f, base: n}
		}
	}
	return nil
}

// run looks when the kernel says that something was counted; it says so of cgroup v2's
// file. Of v1's it looks every so often, which costs a sandbox that does nothing more than
// all else.
func (w *oomWatch) run(stop <-chan struct{}) {
	if told, err := notices(w.file); err == nil {
		done := make(chan struct{})
		defer close(done)
		go func() {
			select {
			case <-stop:
			case <-done:
			}
			told.Close()
		}()
		for err == nil {
			w.look()
			_, err = told.Read(make([]byte, 4<<10))
		}
	}
	tick := time.NewTicker(oomEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look()
		case <-stop:
			return
		}
	}
}

func (w *oomWatch) look() {
	if w == nil {
		return
	}
	if n, ok := oomKills(w.file); ok && n > w.base {
		w.once.Do(func() { fmt.Fprintln(os.Stderr, OOMLine) })
	}
}

// oomKills reads how many processes a memory limit has killed; false where a kernel
// does not say.
func oomKills(file string) (uint64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(count), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// notices are what the kernel says when a file of cgroup v2 has changed (inotify(7)).
func notices(file string) (*os.File, error) {
	if filepath.Base(file) != "memory.events" {
		return nil, errors.ErrUnsupported
	}
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "notices")
	if _, err := syscall.InotifyAddWatch(fd, file, syscall.IN_MODIFY); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
