// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/microvm"
	"github.com/caisson-run/caisson/sandbox/process"
)

// newFirecracker drives this very program, which stands for Firecracker there (package
// firecrackertest) and has QEMU emulate the machine.
func newFirecracker(t testing.TB) sandbox.Driver {
	t.Helper()
	needQEMU(t)
	self, err := os.Executable()
	if err == nil {
		if _, gone := os.Stat(self); gone != nil { // it lies where this user may not look
			self, err = copyOf(t, "/proc/self/exe")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CAISSON_FIRECRACKER", self)
	return microvm.NewUntried(microvm.Options{Machine: microvm.Micro, Box: process.New(process.Options{TAP: true}), Kernels: kernelStore(t)}, 512<<20)
}

// copyOf copies a program.
func copyOf(t testing.TB, file string) (string, error) {
	to := filepath.Join(t.TempDir(), "firecracker")
	from, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, from)
	return to, errors.Join(err, f.Close())
}

// TestFirecracker drives one that stands for it.
func TestFirecracker(t *testing.T) {
	d := newFirecracker(t)
	caps, err := d.Probe(t.Context())
	if err != nil || caps.Unusable != "" || !strings.HasPrefix(caps.Engine, "Firecracker") || !caps.Snapshot {
		t.Errorf("%s, %q, %v, %v", caps.Engine, caps.Unusable, caps.Snapshot, err)
	}
	drive(t, d)
}

// drive drives a whole machine: its disks in their order, its network, its limits, a pause,
// and what its monitor finds itself with.
func drive(t *testing.T, d sandbox.Driver) {
	t.Helper()
	shared := t.TempDir()
	if err := os.WriteFile(filepath.Join(shared, "a"), []byte("of the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	source, err := os.Open(shared)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	nic, router := wire(t)
	m := start(t, d, newSpec(t, func(s *sandbox.Spec) {
		s.Mounts = []sandbox.Mount{{Source: source, Name: shared, Target: "/data", Dir: true}}
		s.Network = &sandbox.Network{NIC: nic, Address: netip.MustParseAddr("198.18.0.2"), Gateway: netip.MustParseAddr("198.18.0.1"), MTU: 32 << 10}
		s.Limits.IO, s.Limits.IOPS = 1<<30, 10_000
	}))
	if got := m.sh("id -u; cat /data/a"); got != "1000\nof the host\n" {
		t.Errorf("inside: %q", got)
	}
	boxed(t, m.spec.ID)
	p := m.instance.(sandbox.Pauser)
	for _, do := range []func() error{
		func() error { return p.Pause(t.Context()) }, func() error { return p.Pause(t.Context()) },
		func() error { return p.Resume(t.Context()) }, func() error { return p.Resume(t.Context()) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	heard := make(chan string, 1)
	go func() { heard <- echo(t, router) }()
	if got := m.sh(`bash -c 'exec 3<>/dev/udp/198.18.0.1/9; echo a question >&3; dd bs=64 count=1 <&3 2>/dev/null'`); got != "an answer\n" {
		t.Errorf("over the network: %q", got)
	}
	if got := <-heard; got != "a question\n" {
		t.Errorf("the router heard %q", got)
	}
	if _, err := m.client.Run(t.Context(), shell("dd if=/dev/zero of=/dev/null bs=300M count=1")); err == nil {
		<-m.instance.Ended()
	}
	if got := m.instance.Limit(); got != sandbox.LimitMemory {
		t.Errorf("it ended by %q", got)
	}
}

// shell is a script.
func shell(script string) *sandbox.Exec {
	return &sandbox.Exec{Argv: []string{"sh", "-c", script}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}}
}

// wire is both ends of one.
func wire(t *testing.T) (nic, router *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	nic, router = os.NewFile(uintptr(fds[0]), "nic"), os.NewFile(uintptr(fds[1]), "router")
	t.Cleanup(func() { nic.Close(); router.Close() })
	return nic, router
}

// echo answers the first packet of UDP, and returns what was in it.
func echo(t *testing.T, router *os.File) string {
	_ = router.SetDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 64<<10)
	for {
		n, err := router.Read(b)
		if err != nil {
			t.Error(err)
			return ""
		}
		if n < 28 || b[0] != 0x45 || b[9] != unix.IPPROTO_UDP {
			continue
		}
		got := string(b[28:n])
		const said = "an answer\n"
		p := append(b[:28:28], said...)
		p[12], p[13], p[14], p[15], p[16], p[17], p[18], p[19] = p[16], p[17], p[18], p[19], p[12], p[13], p[14], p[15]
		p[20], p[21], p[22], p[23] = p[22], p[23], p[20], p[21]
		binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
		binary.BigEndian.PutUint16(p[24:], uint16(8+len(said)))
		p[10], p[11] = 0, 0
		var total uint32
		for i := 0; i < 20; i += 2 {
			total += uint32(binary.BigEndian.Uint16(p[i:]))
		}
		total = total&0xffff + total>>16
		binary.BigEndian.PutUint16(p[10:], ^uint16(total+total>>16))
		if _, err := router.Write(p); err != nil {
			t.Error(err)
		}
		return got
	}
}

// boxed looks at the monitor from outside. It has one place that it can write to, which is
// memory.
func boxed(t *testing.T, id string) {
	t.Helper()
	pid := processOf(t, "/run/firecracker\x00", "\x00"+strings.ReplaceAll(id, "_", "-")+"\x00")
	if pid == "" {
		t.Fatal("there is no monitor")
	}
	confined(t, pid, "/run/vm")
}

// realVariable names a true Firecracker.
const realVariable = "CAISSON_FIRECRACKER"

// The true one, on a host whose KVM works.
func TestRealFirecracker(t *testing.T) {
	if os.Getenv(realVariable) == "" {
		t.Skip("needs a Firecracker: " + realVariable)
	}
	d := microvm.New(microvm.Options{Machine: microvm.Micro, Box: process.New(process.Options{KVM: true, TAP: true}), Kernels: kernelStore(t)}).Variant("firecracker")
	caps, err := d.Probe(t.Context())
	if err != nil || caps.Unusable != "" {
		t.Skipf("%s, %v", caps.Unusable, err)
	}
	drive(t, d)
	t.Run("snapshot", func(t *testing.T) { snapshotOf(t, d) })
	t.Run("fork", func(t *testing.T) { fork(t, d) })
}

// The whole suite on the program that stands for it: make test-vm.
func TestConformanceOfFirecracker(t *testing.T) {
	if testing.Short() {
		t.Skip("it boots a machine for each promise: make test-vm")
	}
	drivertest.Run(t, drivertest.Harness{New: newFirecracker, OnImage: true})
}

func TestFirecrackerAsNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("TestFirecracker and TestFirecrackerFork boot some: make test-vm")
	}
	drivertest.AsUser(t, 65534, "TestFirecracker$|TestFirecrackerFork$")
}
