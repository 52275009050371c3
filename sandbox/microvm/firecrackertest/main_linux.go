// SPDX-License-Identifier: Apache-2.0

package firecrackertest

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	d := &double{khz: khz, refused: map[string]bool{}, inside: map[net.Conn]bool{}}
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
	qmp   *net.UnixConn
	lines *bufio.Reader // of qmp
	ended chan error
	ram   *os.File // the machine's memory; nil where it cannot be written down
	saved bool     // it was written down, and has not run since

	mu      sync.Mutex
	refused map[string]bool   // ports that were asked for once
	inside  map[net.Conn]bool // connections to the machine; those that it has lost are false
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
	api := &API{Version: "1.15.0", Start: d.start, State: d.state, Create: d.create, Load: d.load, Rate: d.rate, Dead: func(err error) { d.ended <- err }}
	go func() { d.ended <- http.Serve(l, api) }()
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
	if err := d.makeMemory(m); err != nil {
		return err
	}
	return d.begin(m)
}

// begin starts QEMU, with more arguments.
func (d *double) begin(m *Machine, more ...string) error {
	l, err := net.Listen("unix", m.Vsock.Socket)
	if err != nil {
		return err
	}
	q := exec.Command("qemu-system-x86_64", append(d.arguments(m), more...)...)
	q.Stdout, q.Stderr = os.Stdout, os.Stderr
	if d.ram != nil {
		q.ExtraFiles = []*os.File{d.ram}
	}
	if err := q.Start(); err != nil {
		return err
	}
	go func() { d.ended <- q.Wait() }()
	c, err := d.dial("qmp")
	if err != nil {
		return err
	}
	d.qmp = c.(*net.UnixConn)
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
	line := strings.ReplaceAll(strings.ReplaceAll(m.Boot.Arguments, boot.ChannelVsock, boot.ChannelPorts), "reboot=k", "reboot=t")
	line += fmt.Sprintf(" tsc=reliable no_timer_check tsc_early_khz=%d", d.khz)
	in := func(name string) string { return filepath.Join(d.dir, name) }
	var all []string
	if d.ram != nil {
		all = []string{"-object", fmt.Sprintf("memory-backend-file,id=ram,size=%dM,mem-path=/proc/self/fd/3,share=on", m.Config.Memory), "-machine", "memory-backend=ram"}
	}
	all = append(all, []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-accel", "tcg,tb-size=128", "-cpu", "max",
		"-M", "microvm,acpi=on,rtc=on,pit=on,pic=on,isa-serial=on,usb=off", "-m", fmt.Sprint(m.Config.Memory), "-smp", fmt.Sprint(m.Config.Processors),
		"-serial", "stdio", "-qmp", "unix:" + in("qmp") + ",server=on,wait=off",
		"-device", "virtio-serial-device,bus=virtio-mmio-bus.6", "-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-device,rng=rng,bus=virtio-mmio-bus.7",
		"-kernel", m.Boot.Kernel, "-initrd", m.Boot.Initrd, "-append", line,
	}...)
	for _, name := range slices.Sorted(maps.Keys(boot.VsockPorts())) { // their numbers are in its memory
		all = append(all, "-chardev", "socket,id="+name+",server=on,wait=off,path="+in(name), "-device", "virtserialport,chardev="+name+",name="+name)
	}
	for i, disk := range m.Drives {
		only := map[bool]string{true: "on", false: "off"}[disk.ReadOnly]
		all = append(all, "-drive", "id="+disk.ID+",if=none,format=raw,file.locking=off,readonly="+only+",file="+disk.File+throttle(disk.Rate),
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

// throttle is what QEMU is told of a drive's rate.
func throttle(r RateLimiter) (s string) {
	for name, n := range map[string]int64{"bps": r.Bandwidth.PerSecond(), "iops": r.Ops.PerSecond()} {
		if n > 0 {
			s += fmt.Sprintf(",throttling.%s-total=%d", name, n)
		}
	}
	return s
}

func (d *double) rate(drive Drive) error {
	bps, iops := drive.Rate.Bandwidth.PerSecond(), drive.Rate.Ops.PerSecond()
	_, err := d.ask("block_set_io_throttle", map[string]any{"device": drive.ID, "bps": bps, "bps_rd": 0, "bps_wr": 0, "iops": iops, "iops_rd": 0, "iops_wr": 0}, nil)
	return err
}

// command gives QEMU a command and waits for its answer.
func (d *double) command(name string) error {
	_, err := d.ask(name, nil, nil)
	return err
}

// ask is command, with arguments and a file that goes with it, for what is answered.
func (d *double) ask(name string, arguments map[string]any, file *os.File) (json.RawMessage, error) {
	what := map[string]any{"execute": name}
	if arguments != nil {
		what["arguments"] = arguments
	}
	b, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := d.qmp.WriteMsgUnix(append(b, '\n'), rights, nil); err != nil {
		return nil, err
	}
	for {
		line, err := d.lines.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		var a struct {
			Return json.RawMessage `json:"return"`
			Error  json.RawMessage `json:"error"`
		}
		switch err := json.Unmarshal(line, &a); {
		case err != nil:
			return nil, err
		case a.Error != nil:
			return nil, fmt.Errorf("%s: %s", name, a.Error)
		case a.Return != nil:
			return a.Return, nil
		}
	}
}

func (d *double) state(paused bool) error {
	if paused {
		return d.command("stop")
	}
	d.saved = false
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
		d.keep(inside, c)
		return
	}
}

// keep carries a connection. Who has it hears that the machine has lost it once something is
// sent.
func (d *double) keep(inside, c net.Conn) {
	defer inside.Close()
	d.mu.Lock()
	d.inside[inside] = true
	d.mu.Unlock()
	if _, err := fmt.Fprintf(c, "OK %d\n", 1<<30); err != nil {
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(inside, c)
		inside.Close()
	}()
	_, _ = io.Copy(c, inside)
	d.mu.Lock()
	lost := !d.inside[inside]
	delete(d.inside, inside)
	d.mu.Unlock()
	if lost {
		<-sent
	}
}

// lose has the machine lose all connections, and waits until QEMU has seen it: what it tells the
// machine of that changes its memory.
func (d *double) lose() error {
	d.mu.Lock()
	for c := range d.inside {
		d.inside[c] = false
		c.Close()
	}
	d.mu.Unlock()
	for {
		b, err := d.ask("query-chardev", nil, nil)
		if err != nil {
			return err
		}
		var all []struct {
			Label string `json:"label"`
			File  string `json:"filename"`
		}
		if err := json.Unmarshal(b, &all); err != nil {
			return err
		}
		joined := false
		for _, c := range all {
			_, port := boot.VsockPorts()[c.Label]
			joined = joined || port && !strings.HasPrefix(c.File, "disconnected:")
		}
		if !joined {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

func (d *double) early(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.refused[name]
	d.refused[name] = true
	return !was
}
