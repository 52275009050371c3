// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// share is what one sandbox may have of what the kernel counts by user: the
// namespace of each is counted against who made it, too, and so one of them could
// leave nothing to all others, and to the host's root (kernel/ucount.c). An eighth
// of what the host's users have is plenty: programs take one or two.
const share = 8

// counted are the settings of a user namespace, and what they are to be.
var counted = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, name := range []string{"max_inotify_instances", "max_inotify_watches"} {
		// Who is not in the first user namespace reads its own.
		text, err := os.ReadFile("/proc/sys/user/" + name)
		n, perr := strconv.Atoi(string(bytes.TrimSpace(text)))
		if err == nil && perr == nil {
			all[name] = strconv.Itoa(max(n/share, 1))
		}
	}
	return all
})

// bound writes down the sandbox's share. It is done while the host's /proc is
// there. Where /proc cannot be written, as in some containers, there is none.
func bound(s *script) {
	s.doing("bound what is counted by user")
	f := s.slot()
	for name, value := range counted() {
		s.call(unix.SYS_OPENAT, unix.AT_FDCWD, "/proc/sys/user/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0).save(f).or(passAll)
		s.call(unix.SYS_WRITE, f, value, len(value)).or(passAll)
		s.call(unix.SYS_CLOSE, f).or(passAll)
	}
}
