// SPDX-License-Identifier: Apache-2.0

package process

import (
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/sandbox"
)

// standAsOthers has the builder, and with it all that it makes, give up what its maker
// may hand down and a sandbox must not have (package standing). What that is, is known
// when it is made (stand): most makers have nothing of it.
func (l *launch) standAsOthers(b *script) {
	b.doing("stand as others do")
	l.ordinary, l.score = len(b.steps), b.slot()
	for range 7 {
		b.call(unix.SYS_GETPID)
	}
}

// stand has the builder give up what it would have of the calling thread, which is about
// to make it. That the kernel rather kills others, root's caisson takes from it; for
// another user that is its own to do.
func (l *launch) stand() error {
	own, err := threads.ReadAttributes()
	if err != nil {
		return &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "it cannot be told what it would inherit", Cause: err}
	}
	s := &script{}
	if own.RealTime {
		s.call(unix.SYS_SCHED_SETSCHEDULER, 0, threads.Ordinary, to(threads.OrdinaryPriority))
	}
	if own.Favoured {
		s.call(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, threads.Ordinary)
	}
	if own.DiskFirst {
		s.call(unix.SYS_IOPRIO_SET, threads.WhoProcess, 0, threads.Ordinary)
	}
	if own.Foreseeable {
		s.call(unix.SYS_PERSONALITY, threads.Ordinary)
	}
	switch {
	case !own.Protected:
	case l.mapper != nil:
		l.mapper.unprotect = true
	default:
		s.call(unix.SYS_OPENAT, unix.AT_FDCWD, "/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0).save(l.score)
		s.call(unix.SYS_WRITE, l.score, threads.Unprotected, len(threads.Unprotected))
		s.call(unix.SYS_CLOSE, l.score)
	}
	b := l.scripts[0]
	copy(b.steps[l.ordinary:], s.steps)
	b.keep = append(b.keep, s.keep...)
	return nil
}
