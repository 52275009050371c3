// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func (p *prober) socket(name string, family, kind, protocol int) {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	p.try("socket "+name, err)
	if err == nil {
		p.held = append(p.held, fd)
	}
}

func (p *prober) netlinks() {
	p.socket("NETLINK_NETFILTER", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	p.socket("NETLINK_XFRM", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM)
	p.socket("NETLINK_AUDIT", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT)
	p.socket("NETLINK_KOBJECT_UEVENT", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT)
}

func (p *prober) rawSockets() {
	p.socket("AF_PACKET", unix.AF_PACKET, unix.SOCK_RAW, 0x300)
	p.socket("SOCK_RAW", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	p.socket("SOCK_RAW of IPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6)
	p.socket("SOCK_PACKET", unix.AF_INET, unix.SOCK_PACKET, 0x300)
	p.socket("AF_RXRPC", unix.AF_RXRPC, unix.SOCK_DGRAM, unix.AF_INET)
	p.socket("AF_KEY", unix.AF_KEY, unix.SOCK_RAW, 2)
	p.socket("AF_XDP", unix.AF_XDP, unix.SOCK_RAW, 0)
}

func (p *prober) ioURing() {
	params := make([]byte, 120)
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 8, uintptr(unsafe.Pointer(&params[0])), 0)
	p.hold("io_uring_setup", fd, errno)
}

// objects asks for parts of the kernel that ordinary programs do without. What
// it gets is seen from outside by the name of the descriptor.
func (p *prober) objects() {
	attr := make([]byte, 128)
	attr[0], attr[4], attr[8], attr[12] = unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1 // key size, value size, entries
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr[0])), uintptr(len(attr)))
	p.hold("bpf map", fd, errno)
	event := &unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: unix.PERF_COUNT_SW_CPU_CLOCK, Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel}
	n, err := unix.PerfEventOpen(event, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	p.holdErr("perf_event_open", n, err)
	fd, _, errno = unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1, 0, 0) // UFFD_USER_MODE_ONLY
	p.hold("userfaultfd", fd, errno)
	n, err = unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	p.holdErr("fsopen", n, err)
	n, err = unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, unix.O_RDONLY)
	p.holdErr("fanotify_init", n, err)
}

func (p *prober) holdErr(what string, fd int, err error) {
	p.try(what, err)
	if err == nil {
		p.held = append(p.held, fd)
	}
}

// keys looks for the host's key in every keyring that it may have inherited,
// and leaves one of its own there.
func (p *prober) keys() {
	for name, ring := range map[string]int{"session": unix.KEY_SPEC_SESSION_KEYRING, "user": unix.KEY_SPEC_USER_KEYRING, "user session": unix.KEY_SPEC_USER_SESSION_KEYRING} {
		id, err := unix.KeyctlSearch(ring, "user", p.Nonce+"-outside", 0)
		p.try("search the "+name+" keyring", err)
		if err == nil {
			data := make([]byte, 4096)
			n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, data, 0)
			p.try("read the key", err)
			p.found("read the key", data[:max(0, min(n, len(data)))])
		}
		_, err = unix.AddKey("user", p.Nonce+"-inside", []byte("x"), ring)
		p.try("add a key to the "+name+" keyring", err)
	}
}

// debug reaches for the memory of a process of the host.
func (p *prober) debug() {
	runtime.LockOSThread()
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(p.Victim), 0, 0, 0, 0)
	p.hold0("ptrace it", errno)
	data := make([]byte, 256)
	local := []unix.Iovec{{Base: &data[0], Len: uint64(len(data))}}
	_, err := unix.ProcessVMReadv(p.Victim, local, []unix.RemoteIovec{{Base: uintptr(p.VictimAt), Len: len(data)}}, 0)
	p.try("process_vm_readv", err)
	p.found("its memory", data)
	name := fmt.Sprintf("/proc/%d/mem", p.Victim)
	if fd := p.open(name, unix.O_RDONLY); fd >= 0 {
		n, _ := unix.Pread(fd, data, int64(p.VictimAt))
		p.found("its memory", data[:max(n, 0)])
	}
}

func (p *prober) hold0(what string, errno unix.Errno) {
	if errno != 0 {
		p.try(what, errno)
	} else {
		p.try(what, nil)
	}
}

// machine asks for what weakens this process or reaches the machine's ports.
func (p *prober) machine() {
	runtime.LockOSThread()
	_, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, 0x0040000, 0, 0) // ADDR_NO_RANDOMIZE
	p.hold0("personality ADDR_NO_RANDOMIZE", errno)
	p.machineCalls()
}

// privileges lists what it can be told by any program.
func (p *prober) privileges() {
	var caps unix.CapUserHeader
	caps.Version = unix.LINUX_CAPABILITY_VERSION_3
	data := [2]unix.CapUserData{}
	err := unix.Capget(&caps, &data[0])
	if err == nil && data[0].Effective|data[1].Effective|data[0].Permitted|data[1].Permitted == 0 {
		err = unix.EPERM
	}
	p.try("have capabilities", err)
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err == nil && set == 1 {
		err = unix.EPERM
	}
	p.try("be without no_new_privs", err)
}

// setUserID runs a program whose file belongs to root and has the bit.
func (p *prober) setUserID() {
	out, err := exec.Command(AtData+"/K14", "-u").Output()
	switch {
	case err != nil:
		p.try("run a set-user-id program", err)
	case strings.TrimSpace(string(out)) == "0":
		p.try("become root by a set-user-id program", nil)
	default:
		p.try("become root by a set-user-id program", unix.EPERM)
	}
}

// terminal types into a terminal that it was left.
func (p *prober) terminal() {
	if fd := p.open("/dev/tty", unix.O_RDWR); fd >= 0 {
		p.typeInto("/dev/tty", fd)
	}
	for fd := range 256 {
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			p.typeInto(fmt.Sprintf("descriptor %d, a terminal", fd), fd)
		}
	}
	p.say("look for terminals")
}

func (p *prober) typeInto(name string, fd int) {
	key := []byte(" ")
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&key[0])))
	p.hold0("TIOCSTI on "+name, errno)
}

// signals goes at a process of the host.
func (p *prober) signals() {
	p.try("kill", unix.Kill(p.Victim, unix.SIGUSR1))
	p.try("tgkill", unix.Tgkill(p.Victim, p.Victim, unix.SIGUSR1))
	fd, err := unix.PidfdOpen(p.Victim, 0)
	p.holdErr("pidfd_open", fd, err)
	if err == nil {
		p.try("pidfd_send_signal", unix.PidfdSendSignal(fd, unix.SIGUSR1, nil, 0))
	}
}

// stealDescriptor takes one out of a process of the host, and asks for one at
// sockets in what is shown of the host.
func (p *prober) stealDescriptor() {
	for _, dir := range []string{AtData, AtWorkspace} {
		p.askForDescriptor(dir + "/K17.sock")
	}
	fd, err := unix.PidfdOpen(p.Victim, 0)
	p.try("pidfd_open", err)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	got, err := unix.PidfdGetfd(fd, 3, 0)
	p.holdErr("pidfd_getfd", got, err)
	if err == nil {
		p.found("read it", contents(got))
	}
}

// askForDescriptor takes what a socket's owner passes on (SCM_RIGHTS).
func (p *prober) askForDescriptor(socket string) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	p.try("connect to "+socket, err)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(conn, "%s\n", p.Nonce)
	word, control := make([]byte, 16), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(word, control)
	if err == nil {
		var messages []unix.SocketControlMessage
		if messages, err = unix.ParseSocketControlMessage(control[:n]); err == nil && len(messages) > 0 {
			var got []int
			if got, err = unix.ParseUnixRights(&messages[0]); err == nil && len(got) > 0 {
				p.held = append(p.held, got...)
				p.found("read it", contents(got[0]))
			}
		}
	}
	p.try("be given a descriptor", err)
}

// junk makes calls that the level says it refuses, with arguments that mean
// nothing: any other answer than a refusal is the kernel's own.
func (p *prober) junk() {
	if len(p.Refused) == 0 {
		p.say("no list of refused system calls")
	}
	for _, c := range p.Refused {
		bad := ^uintptr(0)
		_, _, errno := unix.RawSyscall6(uintptr(c.Number), bad, bad, bad, bad, bad, bad)
		switch errno {
		case unix.EPERM, unix.ENOSYS, unix.EACCES:
			p.try(c.Name, errno)
		default:
			say(Try{Case: p.id, What: c.Name, Got: true, Error: errno.Error()})
		}
	}
}

func (p *prober) environment() {
	p.found("the environment", []byte(strings.Join(os.Environ(), "\n")))
}
