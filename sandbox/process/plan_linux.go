// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/landlock"
	"github.com/caisson-run/caisson/sandbox"
)

// first is the program of a sandbox: the caller's, or the agent.
type first struct {
	argv []string
	env  []string
	dir  string
	// agent says that it is the agent: the open file is executed, as the root
	// inside where there is one.
	agent *os.File
	stdio [3]*os.File
	// late says that what is run is told later, when all else is made; argv, env
	// and dir are empty until then.
	late *late
}

// plan is everything that the children need, in order.
type plan struct {
	spec   *sandbox.Spec
	ids    identity
	rootfs *rootfs
	first  first
	filter []unix.SockFilter
	rules  *landlock.Ruleset
	// readable is what may be read where only listed programs may be executed.
	readable []sandbox.Mask
	group    groupEntry
	stage    *stage // nil: the builder begins with what the host has mounted
	tap      bool   // the network device is a TAP
}

// groupEntry is the way into a control group: the builder takes it, with all that
// comes after.
type groupEntry struct {
	tasks []*os.File // version 1: it writes itself in
	dir   *os.File   // version 2: it is started there
	pids  bool       // the group counts processes
}

// write makes the launch.
func (p *plan) write() (*launch, error) {
	l := &launch{}
	b := &script{steps: make([]step, 0, 512), what: make([]string, 0, 512)}
	if p.ids.private {
		m, err := newMapper(p.ids)
		if err != nil {
			return nil, err
		}
		l.mapper = m
	}
	if p.stage != nil {
		p.stage.enter(b, l)
	}
	l.standAsOthers(b)
	if err := p.connect(b); err != nil {
		return nil, err
	}
	p.becomeRoot(b, l.mapper)
	p.rootfs.build(b, p.stage != nil)
	p.ownNamespaces(b)
	p.lose(b)

	init, err := p.writeInit(b)
	if err != nil {
		return nil, err
	}
	l.startChild(b, &l.init)
	p.rootfs.finish(b, p.stage != nil)
	p.restrict(b)
	program := p.writeProgram(b, l)
	if p.first.late != nil {
		p.letGo(b)
	}
	l.startChild(b, &l.program)
	if p.alone() {
		l.program.clone[1] |= unix.CLONE_NEWUSER
	}
	b.doing("stay with caisson")
	b.call(unix.SYS_GETPPID, os.Getpid())
	l.scripts = [3]*script{b, init, program}
	l.init.file = true
	l.init.argv, l.init.envv = strings0(init, []string{"init"}), strings0(init, nil)
	if p.first.late == nil {
		l.command(p.first)
	}
	l.ready(p.group.dir)
	return l, nil
}

// startChild adds the call that makes another child.
func (l *launch) startChild(b *script, c *child) {
	c.clone = [4]uintptr{unix.SYS_CLONE, sharing | unix.CLONE_PARENT, 0, 0}
	b.doing("start a process")
	b.spawn(c)
}

// becomeRoot gives the builder ids in its user namespace.
func (p *plan) becomeRoot(b *script, m *mapper) {
	if m == nil {
		b.doing("map the user")
		b.mapUser(p.ids.uidMap, p.ids.gidMap)
		return
	}
	b.doing("map a private user")
	ask, answer := new(uint64), new(uint64)
	*ask = mapMe
	b.keep = append(b.keep, m.ask, m.answer)
	// There is no answer where caisson is killed meanwhile.
	b.call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, unix.SIGKILL, 0, 0, 0)
	b.call(unix.SYS_GETPPID, os.Getpid())
	b.call(unix.SYS_WRITE, int(m.ask.Fd()), to(ask), 8)
	b.call(unix.SYS_READ, int(m.answer.Fd()), to(answer), 8)
	b.same(answer, mapped)
	// From here on it may not die alone: it ends the others where caisson is gone.
	b.call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
	b.call(unix.SYS_SETGROUPS, 0, nil)
	b.call(unix.SYS_SETRESGID, 0, 0, 0)
	b.call(unix.SYS_SETRESUID, 0, 0, 0)
}

// mapUser gives a child, in a user namespace that it was born in, the one id that its
// maker has there.
func (s *script) mapUser(uids, gids string) {
	for _, f := range [][2]string{{"setgroups", "deny"}, {"uid_map", uids}, {"gid_map", gids}} {
		fd := s.slot()
		s.call(unix.SYS_OPENAT, unix.AT_FDCWD, "/proc/self/"+f[0], unix.O_WRONLY|unix.O_CLOEXEC, 0).save(fd)
		s.call(unix.SYS_WRITE, fd, f[1], len(f[1]))
		s.close(fd)
	}
}

// ownNamespaces makes what is left of the namespaces and puts their contents in
// order.
func (p *plan) ownNamespaces(b *script) {
	b.doing("enter the control group")
	zero := new(byte)
	*zero = '0'
	for _, f := range p.group.tasks {
		b.keep = append(b.keep, f)
		b.call(unix.SYS_WRITE, int(f.Fd()), to(zero), 1)
	}
	b.doing("make namespaces")
	b.call(unix.SYS_UNSHARE, unix.CLONE_NEWPID|unix.CLONE_NEWCGROUP)
	b.doing("set the host name")
	name := p.spec.Hostname
	if name == "" {
		name = "sandbox"
	}
	b.call(unix.SYS_SETHOSTNAME, name, len(name))
	b.call(unix.SYS_SETDOMAINNAME, "(none)", len("(none)"))
	b.doing("bring up its own loopback")
	up := &interfaceRequest{name: [unix.IFNAMSIZ]byte{'l', 'o'}, flags: unix.IFF_UP}
	sock := b.slot()
	b.call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0).save(sock)
	b.call(unix.SYS_IOCTL, sock, unix.SIOCSIFFLAGS, to(up))
	b.close(sock)
	b.doing("take a key ring of its own")
	b.call(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, nil).or(unix.ENOSYS)
}

// interfaceRequest is struct ifreq (netdevice(7)) with flags.
type interfaceRequest struct {
	name  [unix.IFNAMSIZ]byte
	flags uint16
	_     [22]byte
}

// writeInit is the life of the first process: it mounts the /proc of its own pid
// namespace and then becomes idle.
func (p *plan) writeInit(b *script) (*script, error) {
	s := &script{next: b.next}
	program, err := idle()
	if err != nil {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "its first process cannot be prepared", Cause: err}
	}
	s.doing("start its first process")
	s.call(unix.SYS_SETSID)
	s.doing("mount /proc")
	s.attach(s.filesystem("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC), "/proc")
	s.doing("shut in its first process")
	ignore := &[4]uint64{1} // SIG_IGN: the kernel reaps what falls to it
	s.call(unix.SYS_RT_SIGACTION, syscall.SIGCHLD, to(ignore), nil, sizeofSigset)
	s.call(unix.SYS_DUP3, s.aside(program), programFD, unix.O_CLOEXEC)
	s.call(unix.SYS_CLOSE_RANGE, programFD+1, uintptr(^uint32(0)), 0)
	s.call(unix.SYS_CLOSE_RANGE, 0, programFD-1, 0)
	s.limit(unix.RLIMIT_CORE, 1)
	for c := range lastCapability() + 1 {
		if p.kept()&(1<<c) != 0 {
			s.call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
	s.call(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, lockedBits, 0, 0, 0)
	s.capabilities(0)
	s.call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	s.call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, unix.SIGKILL, 0, 0, 0)
	s.filter(idleFilter())
	return s, nil
}

// usualSlack is how late, in nanoseconds, Linux lets timers of a process be by default. A
// program inside has it, whatever who made the sandbox lets its own be.
const usualSlack = 50_000

// writeProgram is the life of the program up to execve.
func (p *plan) writeProgram(b *script, l *launch) *script {
	s := &script{next: b.next}
	s.doing("start the program")
	s.call(unix.SYS_SETSID)
	if p.alone() {
		p.standAlone(s)
	}
	var files []any // before the first of them is where another one was
	for _, f := range p.first.stdio {
		files = append(files, s.aside(f))
	}
	own := p.first.late.files()
	if p.first.agent != nil { // which is never late
		own = []*os.File{p.first.agent}
	}
	for _, f := range own {
		files = append(files, s.aside(f))
	}
	for i := range p.first.stdio {
		s.call(unix.SYS_DUP3, files[i], i, 0)
	}
	s.doing("limit the program")
	p.rlimits(s)
	s.call(unix.SYS_UMASK, 0o022)
	s.doing("take its rights from the program")
	if p.ids.private && p.first.agent == nil {
		s.call(unix.SYS_SETGROUPS, 0, nil)
		s.call(unix.SYS_SETRESGID, p.spec.User.GID, p.spec.User.GID, p.spec.User.GID)
		s.call(unix.SYS_SETRESUID, p.spec.User.UID, p.spec.User.UID, p.spec.User.UID)
	}
	s.capabilities(p.kept())
	s.call(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0)
	s.call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	s.call(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, unix.SIGKILL, 0, 0, 0)
	if p.rules != nil {
		s.doing("shut in the program")
		s.call(unix.SYS_LANDLOCK_RESTRICT_SELF, p.rules.FD(), p.rules.Flags())
	}
	s.doing("start the program")
	for i := range own {
		s.call(unix.SYS_DUP3, files[len(p.first.stdio)+i], programFD+i, unix.O_CLOEXEC)
	}
	s.call(unix.SYS_CLOSE_RANGE, programFD+len(own), uintptr(^uint32(0)), 0)
	s.call(callDefaults)
	none := new(uint64)
	s.doing("install the system call filter")
	if p.spec.Executables != nil {
		s.filter(memoryFilter())
	}
	s.filter(p.filter)
	if p.first.late != nil {
		p.first.late.park(s)
	}
	l.enter = len(s.steps)
	s.call(unix.SYS_CHDIR, nil)
	s.doing("start the program")
	s.call(unix.SYS_RT_SIGPROCMASK, sigSetmask, to(none), nil, sizeofSigset)
	return s
}

// command says what the program runs, and where.
func (l *launch) command(f first) {
	s, c := l.scripts[2], &l.program
	s.steps[l.enter].arg[0] = s.string(f.dir)
	l.dir, s.what[l.enter] = f.dir, "enter the working directory "+f.dir

	c.argv, c.envv = strings0(s, f.argv), strings0(s, f.env)
	c.file = f.agent != nil
	if c.file {
		return
	}
	names := candidates(f.argv[0], f.env)
	paths := make([]uintptr, len(names))
	for i, name := range names {
		paths[i] = s.string(name)
	}
	s.keep = append(s.keep, paths)
	c.paths, c.tries = &paths[0], len(paths)
}

// strings0 is a list of C strings that ends with NULL.
func strings0(s *script, list []string) uintptr {
	out := make([]uintptr, len(list)+1)
	for i, text := range list {
		out[i] = s.string(text)
	}
	s.keep = append(s.keep, out)
	return uintptr(unsafe.Pointer(&out[0]))
}

// defaultPath is where a command is looked up when the environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// candidates are the files that a command name may mean, by env's PATH.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	search := defaultPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			search = v
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

// lastCapability is the kernel's last.
var lastCapability = sync.OnceValue(func() int {
	for c := 63; c > unix.CAP_LAST_CAP; c-- {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil {
			return c
		}
	}
	return unix.CAP_LAST_CAP
})
