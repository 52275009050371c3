// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/linux/seccomp"
)

// defaultPath is where a command is looked up when the environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// startError says why a program did not start.
type startError struct {
	failure wire.Failure
	message string
	errno   syscall.Errno // of NoDirectory
	dir     string        // of NoDirectory
}

func (e *startError) Error() string { return e.message }

// code is what a shell would make of it.
func (e *startError) code() int {
	switch e.failure {
	case wire.NotFound:
		return 127
	case wire.NotExecutable:
		return 126
	}
	return 125
}

// output is what a started program writes.
type output struct {
	stdout, stderr *os.File // with a terminal, stdout is the terminal and stderr nil
}

func (o output) close() {
	for _, f := range []*os.File{o.stdout, o.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// spawn starts a program. Its process is in the table until it ends.
func (a *Agent) spawn(r *wire.StartRequest) (*process, output, error) {
	if err := r.Check(); err != nil {
		return nil, output{}, &startError{failure: wire.Refused, message: err.Error()}
	}
	c, err := newChild(r)
	if err == nil && a.options.Filter {
		c.filter, err = untrusted()
	}
	if err != nil {
		return nil, output{}, err
	}
	p := &process{id: r.ID}
	var out output
	theirs := stdio{-1, -1, -1}
	if r.Terminal != nil {
		out, err = p.connectTerminal(r, &theirs)
	} else {
		out, err = p.connectPipes(r.Stdin, &theirs)
	}
	if err == nil {
		c.stdio = theirs
		err = a.launch(c, p)
	}
	theirs.close()
	if err != nil {
		out.close()
		if p.stdin != nil {
			p.stdin.Close()
		}
		return nil, output{}, err
	}
	return p, out, nil
}

// stdio are a child's ends of its three files, in blocking mode; -1 is none. They are
// no os.Files, which would cost half a dozen system calls each.
type stdio [3]int

func (s stdio) close() {
	for i, fd := range s {
		if fd >= 0 && (i == 0 || fd != s[i-1]) { // a terminal is all three
			syscall.Close(fd)
		}
	}
}

// launch forks and waits until the program is executed or cannot be.
func (a *Agent) launch(c *child, p *process) error {
	var report [2]int
	if err := syscall.Pipe2(report[:], syscall.O_CLOEXEC); err != nil {
		return failed(err)
	}
	if len(c.further) > 0 { // it must be where none of them goes
		high, err := above(report[1])
		syscall.Close(report[1])
		if err != nil {
			syscall.Close(report[0])
			return failed(err)
		}
		report[1] = high
	}
	c.report = report[1]
	err := a.table.start(c, p)
	syscall.Close(report[1])
	if err != nil {
		syscall.Close(report[0])
		return failed(err)
	}
	f := os.NewFile(uintptr(report[0]), "report")
	defer f.Close()
	told, err := io.ReadAll(f)
	if err != nil { // it does not happen, and c must stay all the same
		<-p.done
	}
	at, errno := c.failure(told)
	if err != nil {
		return failed(err)
	}
	if at == 0 {
		return nil // executed
	}
	<-p.done // reap it before it is seen
	return explain(c, at, errno)
}

// above is another descriptor for what fd is, that no program gets by its number.
func above(fd int) (int, error) {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, firstFree)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// explain makes a sentence of a child's failure.
func explain(c *child, at stage, errno syscall.Errno) error {
	switch at {
	case stageDir:
		return &startError{
			failure: wire.NoDirectory, message: fmt.Sprintf("working directory %s: %s", text(c.dir), errno.Error()),
			errno: errno, dir: text(c.dir),
		}
	case stageExec:
		name := text(c.argv[0])
		switch {
		case errno == syscall.ENOENT && strings.Contains(name, "/"):
			// The file may be there and its interpreter not.
			if _, err := os.Stat(name); err == nil {
				return &startError{failure: wire.NotExecutable, message: name + ": its interpreter is missing"}
			}
			return &startError{failure: wire.NotFound, message: name + ": no such file"}
		case errno == syscall.ENOENT:
			return &startError{failure: wire.NotFound, message: name + ": command not found"}
		case errno == syscall.ENOTDIR:
			return &startError{failure: wire.NotFound, message: name + ": " + errno.Error()}
		case errno == syscall.E2BIG:
			return &startError{failure: wire.NotExecutable, message: name + ": " + wire.ArgumentsTooLong}
		}
		return &startError{failure: wire.NotExecutable, message: name + ": " + errno.Error()}
	}
	return failed(fmt.Errorf("prepare the process: %w", errno))
}

func failed(err error) error { return &startError{failure: wire.Failed, message: err.Error()} }

// untrusted is the system call filter of programs.
var untrusted = sync.OnceValues(func() (*unix.SockFprog, error) {
	f, err := seccomp.Untrusted(runtime.GOARCH)
	if err != nil {
		return nil, failed(err)
	}
	return &unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}, nil
})

// newChild prepares everything that the child must not allocate.
func newChild(r *wire.StartRequest) (*child, error) {
	c := &child{
		terminal:      r.Terminal != nil,
		uid:           uintptr(r.UID),
		gid:           uintptr(r.GID),
		newPrivileges: r.NewPrivileges,
	}
	// An agent that is not root cannot become another user.
	if os.Geteuid() == 0 {
		c.switchUser = true
	} else if int(r.UID) != os.Geteuid() || int(r.GID) != os.Getegid() {
		return nil, &startError{failure: wire.Refused, message: fmt.Sprintf("the agent is user %d and cannot become %d", os.Geteuid(), r.UID)}
	}
	if !r.NewPrivileges && r.UID != 0 { // root's own programs may have what the agent has
		c.bounding = boundingSet()
	}
	var err error
	if c.rlimits, err = rlimits(r.Limits); err != nil {
		return nil, failed(err)
	}
	// Strings were checked for NUL bytes.
	c.dir, _ = syscall.BytePtrFromString(r.Dir)
	c.argv, _ = syscall.SlicePtrFromStrings(r.Argv)
	c.envv, _ = syscall.SlicePtrFromStrings(r.Env)
	for _, name := range candidates(r.Argv[0], r.Env) {
		b, _ := syscall.BytePtrFromString(name)
		c.paths = append(c.paths, b)
	}
	return c, nil
}

// candidates are the files that a command name may mean, by env's PATH.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	search := defaultPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			search = v // the last one counts, as it does for execvp's getenv in most shells
		}
	}
	var all []string
	for dir := range strings.SplitSeq(search, ":") {
		if dir == "" {
			dir = "."
		}
		all = append(all, dir+"/"+name)
	}
	return all
}

// rlimits are what a child sets. A limit above the agent's own hard one is
// already stricter and stays.
func rlimits(l wire.Limits) ([]rlimit, error) {
	const nproc = 6 // RLIMIT_NPROC, which syscall does not name
	if l.OpenFiles == 0 {
		// Go raised the agent's own soft limit; programs expect the usual one.
		l.OpenFiles = 1024
	}
	set := []rlimit{{resource: syscall.RLIMIT_CORE}}
	for _, w := range []struct {
		resource uintptr
		value    uint64
	}{
		{syscall.RLIMIT_NOFILE, l.OpenFiles},
		{nproc, l.Processes},
		{syscall.RLIMIT_FSIZE, l.FileSize},
		{syscall.RLIMIT_CPU, l.CPU},
	} {
		if w.value == 0 {
			continue
		}
		now, err := ownLimit(w.resource)
		if err != nil {
			return nil, err
		}
		v := syscall.Rlimit{Cur: min(w.value, now.Max), Max: min(w.value, now.Max)}
		if w.resource == syscall.RLIMIT_CPU && v.Max < now.Max {
			v.Max++ // SIGXCPU at the soft limit, SIGKILL a second later
		}
		set = append(set, rlimit{w.resource, v})
	}
	// The kernel counts these by user, who may be the same for many sandboxes, and holds
	// the sum against the limit of the process that is to get one. Go signals its threads
	// in this way to make a system call in all of them, and waits for ever where the
	// signal is refused: the other half is the agents'.
	own, err := ownLimit(sigpending)
	if half := own.Max / 2; err == nil && half > 0 && boundsPending() {
		set = append(set, rlimit{sigpending, syscall.Rlimit{Cur: half, Max: half}})
	}
	return set, err
}

const sigpending = 11 // RLIMIT_SIGPENDING, which syscall does not name

// boundsPending says whether the kernel lets such a limit be set at all: gVisor's refuses
// even the one that it has, and counts none.
var boundsPending = sync.OnceValue(func() bool {
	own, err := ownLimit(sigpending)
	return err == nil && setLimit(sigpending, &own) == nil
})

// ownLimit is the agent's own limit of a resource, which nothing changes while it runs.
func ownLimit(resource uintptr) (syscall.Rlimit, error) {
	if l, ok := ownLimits.Load(resource); ok {
		return l.(syscall.Rlimit), nil
	}
	var l syscall.Rlimit
	if err := prlimit(resource, &l); err != nil {
		return l, err
	}
	ownLimits.Store(resource, l)
	return l, nil
}

var ownLimits sync.Map // resources to syscall.Rlimit

// connectPipes gives the child a pipe for each of its three files.
func (p *process) connectPipes(stdin bool, theirs *stdio) (output, error) {
	var out output
	var err error
	if stdin {
		p.stdin, theirs[0], err = pipe(false)
	} else {
		theirs[0], err = syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	}
	if err == nil {
		out.stdout, theirs[1], err = pipe(true)
	}
	if err == nil {
		out.stderr, theirs[2], err = pipe(true)
	}
	if err != nil {
		return out, failed(err)
	}
	return out, nil
}

// connectTerminal gives the child one end of a PTY.
func (p *process) connectTerminal(r *wire.StartRequest, theirs *stdio) (output, error) {
	master, slave, err := openTerminal(*r.Terminal, int(r.UID), int(r.GID))
	if err != nil {
		return output{}, failed(err)
	}
	*theirs = stdio{slave, slave, slave}
	p.terminal, p.stdin = master, master
	return output{stdout: master}, nil
}

// pipe makes a pipe of which only our end is non-blocking: the mode belongs to
// an end's open file, and a program that finds its own so breaks. theirs is -1 when
// it fails.
func pipe(weRead bool) (ours *os.File, theirs int, err error) {
	var fd [2]int
	if err := syscall.Pipe2(fd[:], syscall.O_CLOEXEC); err != nil {
		return nil, -1, errors.Join(errors.New("make a pipe"), err)
	}
	mine, theirs := fd[1], fd[0]
	if weRead {
		mine, theirs = fd[0], fd[1]
		_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(mine), syscall.F_SETPIPE_SZ, pipeSize) // best effort
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(mine), syscall.F_SETFL, syscall.O_NONBLOCK); errno != 0 {
		syscall.Close(mine)
		syscall.Close(theirs)
		return nil, -1, errno
	}
	return os.NewFile(uintptr(mine), "pipe"), theirs, nil
}
