// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// How soon awaitInit looks for unknown children, and how often at least.
const (
	lookSoon  = 50 * time.Millisecond
	lookEvery = time.Second
)

// awaitInit waits until init has ended, which its parent, the calling thread, still
// has to reap. Init ends after everything else in its pid namespace was reaped; what
// no other process reaps and is this thread's own is reaped here.
func awaitInit(init int) {
	pidfd, err := unix.PidfdOpen(init, 0)
	if err != nil {
		pidfd = -1 // poll then sleeps
	} else {
		defer unix.Close(pidfd)
	}
	for pause := lookSoon; ; pause = min(2*pause, lookEvery) {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(pause.Milliseconds()))
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, init, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if info.Signo != 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if !leaveUnknown.Load() {
			reapUnknown()
		}
	}
}

// leaveUnknown is false but in tests of an end that does not come.
var leaveUnknown atomic.Bool

// reapUnknown reaps dead children of the calling thread, which has reaped the program
// that it started, that are in a pid namespace below ours and not the first process
// there. Only a process inside can have made such a child: by clone(CLONE_PARENT),
// which the system call filter refuses.
func reapUnknown() {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, ok := readStatus(pid); ok && s.parent == os.Getpid() && s.state == "Z" && s.below && !s.first {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG|unix.WNOTHREAD|unix.WALL, nil)
		}
	}
}

// status is a part of /proc/PID/status.
type status struct {
	name, state string // state is one letter, see proc(5)
	parent      int
	below       bool // it is in a pid namespace below the one of /proc
	first       bool // and the first process there
}

func readStatus(pid int) (s status, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return s, false
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch key {
		case "Name":
			s.name = strings.TrimSpace(value)
		case "State":
			s.state = fields[0]
		case "PPid":
			s.parent, _ = strconv.Atoi(fields[0])
		case "NSpid":
			s.below, s.first = len(fields) > 1, fields[len(fields)-1] == "1"
		}
	}
	return s, true
}
