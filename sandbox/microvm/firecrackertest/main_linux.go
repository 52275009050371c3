// SPDX-License-Identifier: Apache-2.0

package firecrackertest

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/boot"
)

// Name is what a program is called that Main takes over in.
const Name = "firecracker"

// Main is Firecracker where the program was started by that name; elsewhere it returns at
// once. KHz is how fast this host's processors count.
func Main(khz int) {
	if len(os.Args) == 0 || filepath.Base(os.Args[0]) != Name {
		return
	}
	d := &double{khz: khz, refused: map[string]bool{}}
	if err := d.run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "firecracker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// double stands for Firecracker.
type double struct {
	khz   int
	dir   string // of its sockets
	qmp   net.Conn
	lines *bufio.Reader // of qmp
	ended chan error

	mu      sync.Mutex
	refused map[string]bool // ports that were asked for once
}

// run serves until the machine has ended.
func (d *double) run(args []string) error {
	f := flag.NewFlagSet(Name, flag.ContinueOnError)
	socket, id := f.String("api-sock", "", ""), f.String("id", "", "")
	f.String("level", "Info", "")
	bare := f.Bool("no-seccomp", false, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	if !*bare {
		if err := filter(); err != nil {
			return fmt.Errorf("install a system call filter: %w", err)
		}
	}
	if strings.Trim(*id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" || *id == "" || len(*id) > 64 {
		return fmt.Errorf("invalid instance id %q", *id)
	}
	l, err := net.Listen("unix", *socket)
	if err != nil {
		return err
	}
	d.dir, d.ended = filepath.Dir(*socket), make(chan error, 1)
	go func() { d.ended <- http.Serve(l, &API{Version: "1.15.0", Start: d.start, State: d.state}) }()
	return <-d.ended
}

// filter installs a system call filter, one that allows all, as Firecracker does one of its
// own unless it is told not to.
func filter() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	fprog := unix.SockFprog{Len: 1, Filter: &program[0]}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog))); e != 0 {
		return e
	}
	return nil
}

// start boots the machine in QEMU, and listens for connections to it.
func (d *double) start(m *Machine) error {
	l, err := net.Listen("unix", m.Vsock.Socket)
	if err != nil {
		return err
	}
	q := exec.Command("qemu-system-x86_64", d.arguments(m)...)
	q.Stdout, q.Stderr = os.Stdout, os.Stderr
	if err := q.Start(); err != nil {
		return err
	}
	go func() { d.ended <- q.Wait() }()
	if d.qmp, err = d.dial("qmp"); err != nil {
		return err
	}
	d.lines = bufio.NewReader(d.qmp)
	if err := d.command("qmp_capabilities"); err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go d.join(c)
		}
	}()
	return nil
}

// arguments are QEMU's. The disks have no serials that the guest could know them by, and
// are where Firecracker has them: in their order, which is that of falling numbers of
// buses. At bus 0 a disk was seen to keep the ports silent (QEMU 7.2).
func (d *double) arguments(m *Machine) []string {
	// QEMU without a vhost-vsock of the host has no vsock device: the channel is a port. It
	// has no keyboard's controller to restart by, and its processor no timer of its own.
	line := strings.ReplaceAll(strings.ReplaceAll(m.Boot.Arguments, boot.ChannelVsock, ""), "reboot=k", "reboot=t")
	line += fmt.Sprintf(" tsc=reliable no_timer_check tsc_early_khz=%d", d.khz)
	in := func(name string) string { return filepath.Join(d.dir, name) }
	all := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-accel", "tcg,tb-size=128", "-cpu", "max",
		"-M", "microvm,acpi=on,rtc=on,pit=on,pic=on,isa-serial=on,usb=off", "-m", fmt.Sprint(m.Config.Memory), "-smp", fmt.Sprint(m.Config.Processors),
		"-serial", "stdio", "-qmp", "unix:" + in("qmp") + ",server=on,wait=off",
		"-device", "virtio-serial-device,bus=virtio-mmio-bus.6", "-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-device,rng=rng,bus=virtio-mmio-bus.7",
		"-kernel", m.Boot.Kernel, "-initrd", m.Boot.Initrd, "-append", line,
	}
	for name := range boot.VsockPorts() {
		all = append(all, "-chardev", "socket,id="+name+",server=on,wait=off,path="+in(name), "-device", "virtserialport,chardev="+name+",name="+name)
	}
	for i, disk := range m.Drives {
		only := map[bool]string{true: "on", false: "off"}[disk.ReadOnly]
		all = append(all, "-drive", "id="+disk.ID+",if=none,format=raw,file.locking=off,readonly="+only+",file="+disk.File,
			"-device", fmt.Sprintf("virtio-blk-device,drive=%s,bus=virtio-mmio-bus.%d", disk.ID, 5-i))
	}
	for i, c := range m.Cards {
		all = append(all, "-netdev", fmt.Sprintf("tap,id=net%d,ifname=%s,script=no,downscript=no", i, c.Device),
			"-device", fmt.Sprintf("virtio-net-device,netdev=net%d,mac=%s,bus=virtio-mmio-bus.%d", i, c.MAC, 2-i))
	}
	return all
}

// dial connects to a socket of QEMU's, which is there soon.
func (d *double) dial(name string) (c net.Conn, err error) {
	for range 10 * 60 * 5 {
		if c, err = net.Dial("unix", filepath.Join(d.dir, name)); err == nil {
			return c, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
}

// command gives QEMU a command and waits for its answer.
func (d *double) command(name string) error {
	if _, err := fmt.Fprintf(d.qmp, "{\"execute\": %q}\n", name); err != nil {
		return err
	}
	for {
		line, err := d.lines.ReadString('\n')
		switch {
		case err != nil:
			return err
		case strings.Contains(line, `"return"`):
			return nil
		case strings.Contains(line, `"error"`):
			return fmt.Errorf("%s: %s", name, line)
		}
	}
}

func (d *double) state(paused bool) error {
	if paused {
		return d.command("stop")
	}
	return d.command("cont")
}

// join joins a connection to the port of the machine that it asks for. The first that asks
// for a port comes too early: nothing listens yet, and it is hung up.
func (d *double) join(c net.Conn) {
	defer c.Close()
	var port uint32
	if _, err := fmt.Fscanf(c, "CONNECT %d\n", &port); err != nil {
		return
	}
	for name, number := range boot.VsockPorts() {
		if number != port || d.early(name) {
			continue
		}
		inside, err := d.dial(name)
		if err != nil {
			return
		}
		defer inside.Close()
		if _, err := fmt.Fprintf(c, "OK %d\n", 1<<30); err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(inside, c)
			inside.Close()
		}()
		_, _ = io.Copy(c, inside)
	}
}

func (d *double) early(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.refused[name]
	d.refused[name] = true
	return !was
}
