// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/guest/wire"
)

// Main is the agent as a program: fd 0 is the stream, fd 1 and 2 are its log.
// It never returns.
//
//	-stdio                    fd 0 and 1 are the stream, as two pipes; fd 2 is the log
//	-user UID:GID:NAME:HOME   whom envd's services mean when a request names no user
//	-sudo                     requests may name root, set-user-id programs work, and there is a sudo
//	-programs DIR             a directory in PATH for that
//	-name ID                  nothing; by it a process is known from outside
//	-filter                   programs get the system call filter for untrusted code
//	-map U0:U:G0:G            see enter
//	-memory                   start again from a file in memory first
//	-stay DURATION            wait this long for a new stream instead of ending with it
func Main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "caisson-guest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(args []string) error {
	o, f, err := parseFlags(args)
	if err != nil {
		return err
	}
	if f.memory {
		return intoMemory(args)
	}
	if list := os.Getenv(OwnVariable); list != "" {
		uid, gid := int(o.UID), int(o.GID)
		if f.ids != nil {
			uid, gid = f.ids.userUID, f.ids.userGID
		}
		if err := own(list, uid, gid); err != nil {
			return err
		}
	}
	if f.ids != nil {
		return enter(f.ids, o, args)
	}
	if f.inner {
		if err := settleIn(); err != nil {
			return err
		}
	}
	mark, err := wire.ParseMark(os.Getenv(MarkVariable))
	if err != nil {
		return fmt.Errorf("%s: %w", MarkVariable, err)
	}
	paths, oom := os.Getenv(LookVariable), os.Getenv(OOMVariable) != ""
	wipeEnvironment()
	if err := hide(); err != nil {
		return fmt.Errorf("hide the agent: %w", err)
	}
	if paths != "" {
		if err := look(paths); err != nil {
			return err
		}
	}
	syscall.Umask(0o022)
	// A sandbox has better uses for its memory than the agent's garbage.
	debug.SetGCPercent(50)
	// Nor does it need all of a large machine's processors, of which a control group
	// may give it a part.
	const maxThreads = 4
	if runtime.GOMAXPROCS(0) > maxThreads {
		runtime.GOMAXPROCS(maxThreads)
	}
	// Not signal.Ignore: what is ignored is inherited by every program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	s, err := takeStream(f.pipes)
	if err != nil {
		return err
	}
	defer s.Close()
	a := New(o)
	if oom {
		a.table.oom = newOOMWatch(oomFiles)
	}
	// The first process of its own world: tests run an agent in the host's.
	if o.Sudo && o.Programs != "" && os.Getpid() == 1 {
		a.furnish()
	}
	return a.Serve(s, mark)
}

// flags are what concerns the start alone.
type flags struct {
	pipes  bool
	memory bool // we are to start again from memory
	inner  bool // we are the child of enter
	ids    *ids // we are to enter
}

func parseFlags(args []string) (o Options, start flags, err error) {
	f := flag.NewFlagSet("caisson-guest", flag.ContinueOnError)
	f.String("name", "", "")
	f.BoolVar(&start.memory, memoryFlag, false, "")
	f.BoolVar(&start.pipes, "stdio", false, "")
	f.BoolVar(&start.inner, "inner", false, "")
	f.BoolVar(&o.Sudo, "sudo", false, "")
	f.StringVar(&o.Programs, "programs", "", "")
	f.BoolVar(&o.Filter, "filter", false, "")
	f.DurationVar(&o.Stay, "stay", 0, "")
	f.Func("map", "", func(s string) (err error) {
		start.ids, err = parseIDs(s)
		return err
	})
	f.Func("user", "", func(s string) (err error) {
		p := strings.SplitN(s, ":", 4)
		if len(p) != 4 {
			return errors.New("want UID:GID:NAME:HOME")
		}
		uid, err1 := strconv.ParseUint(p[0], 10, 32)
		gid, err2 := strconv.ParseUint(p[1], 10, 32)
		o.UID, o.GID, o.Name, o.Home = uint32(uid), uint32(gid), p[2], p[3]
		return errors.Join(err1, err2)
	})
	err = f.Parse(args)
	return o, start, err
}

// takeStream moves the stream from fd 0, or from fd 0 and 1, to where no
// program inherits it.
//
// The file for fd 0 must not be os.NewFile(0): when such a file is collected,
// it closes fd 0. Inside gVisor the stream must arrive on fd 0, since only
// stdio survives a checkpoint; a duplicate there is the same open file.
func takeStream(pipes bool) (wire.Stream, error) {
	in, err := duplicate(0)
	if err != nil {
		return nil, err
	}
	if null, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
		syscall.Dup3(null, 0, 0)
		syscall.Close(null)
	}
	if !pipes {
		return in, nil
	}
	out, err := duplicate(1)
	if err != nil {
		return nil, err
	}
	if err := syscall.Dup3(2, 1, 0); err != nil {
		return nil, fmt.Errorf("take the stream from fd 1: %w", err)
	}
	return wire.Pair(in, out), nil
}

// duplicate is a non-blocking file for what fd is.
func duplicate(fd int) (*os.File, error) {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 3)
	if errno != 0 {
		return nil, fmt.Errorf("take the stream from fd %d: %w", fd, errno)
	}
	if err := syscall.SetNonblock(int(n), true); err != nil {
		return nil, fmt.Errorf("take the stream from fd %d: %w", fd, err)
	}
	return os.NewFile(n, "stream"), nil
}

// wipeEnvironment overwrites the environment that the kernel shows in
// /proc/PID/environ and forgets it. Where that cannot be done (gVisor shows no
// addresses) the file is still another user's, which code inside is not.
func wipeEnvironment() {
	os.Clearenv()
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	const envStart, envEnd = 50 - 3, 51 - 3 // proc_pid_stat(5), from the state on
	if len(f) <= envEnd {
		return
	}
	from, err1 := strconv.ParseInt(f[envStart], 10, 64)
	to, err2 := strconv.ParseInt(f[envEnd], 10, 64)
	if err1 != nil || err2 != nil || from <= 0 || to <= from || to-from > 8<<20 {
		return
	}
	m, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer m.Close()
	m.WriteAt(make([]byte, to-from), from)
}
