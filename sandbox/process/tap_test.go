// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/process"
)

// monitor opens the device as a machine monitor does, sends a frame, and echoes the
// payload of the next one. It can neither make a device nor change this one.
const monitor = `
import errno, fcntl, os, select, socket, struct
def attach(name, flags=0x5002):
    f = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(f, 0x400454ca, struct.pack("16sH22x", name, flags))
    return f
for name, flags in [(b"tap1", 0x5002), (b"tun0", 0x5001)]:
    try: attach(name, flags); print("made", name)
    except OSError as e: assert e.errno == errno.EPERM, e
tap = attach(b"tap0")
try: fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH22x", b"tap0", 0)); print("changed")
except OSError as e: assert e.errno == errno.EPERM, e
try: socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print("listens")
except OSError as e: assert e.errno == errno.EAFNOSUPPORT, e
# an ARP question, which nothing answers, then IPv4
os.write(tap, bytes(10) + b"\xff"*6 + b"\x02\0\0\0\0\1" + b"\x08\x06" + bytes(28))
while True: # as long as the owner does not listen yet
    os.write(tap, bytes(10) + b"\x02\0\0\0\0\2" + b"\x02\0\0\0\0\1" + b"\x08\0" + b"to the owner")
    if not select.select([tap], [], [], 0.05)[0]: continue
    frame = os.read(tap, 70000)[10:]
    if frame[12:14] == b"\x08\0": break
print(frame[14:].decode())
`

func TestTAPAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestTAP") }

func TestTAP(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	if why, _ := tun.Usable(); why != "" {
		t.Skip(why)
	}
	spec := fixture(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	nic, ours := os.NewFile(uintptr(fds[0]), "nic"), os.NewFile(uintptr(fds[1]), "owner")
	defer nic.Close()
	defer ours.Close()
	spec.Network = &sandbox.Network{NIC: nic, Address: netip.MustParseAddr("198.18.0.2"), Gateway: netip.MustParseAddr("198.18.0.1"), MTU: 32 << 10}
	answered := make(chan string, 1)
	go func() { answered <- answer(t, ours) }()
	var out bytes.Buffer
	res, err := process.New(process.Options{TAP: true}).Run(t.Context(), spec, &sandbox.Exec{
		Argv: []string{"python3", "-c", monitor}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &out,
	})
	if err != nil || res.ExitCode == nil || *res.ExitCode != 0 || out.String() != "from the owner\n" {
		t.Errorf("%+v, %v: %q", res, err, &out)
	}
	ours.Close()
	if got := <-answered; got != "to the owner" {
		t.Errorf("the owner reads %q", got)
	}
}

// answer takes the other end of the device, reads a frame and sends one.
func answer(t *testing.T, ours *os.File) string {
	c, err := net.FileConn(ours)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	fd := receive(t, c)
	f := os.NewFile(uintptr(fd), "frames")
	defer f.Close()
	if err := tun.Frames(fd); err != nil {
		t.Error(err)
		return ""
	}
	_ = f.SetDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 1<<16)
	n, err := f.Read(b)
	if err != nil || n < 14 {
		t.Errorf("%d bytes, %v", n, err)
		return ""
	}
	if _, err := f.Write([]byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x00from the owner")); err != nil {
		t.Error(err)
	}
	return string(b[14:n])
}

// receive takes one descriptor that is sent over a socket; -1 is none.
func receive(t *testing.T, c net.Conn) int {
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), control)
	if err == nil {
		var messages []unix.SocketControlMessage
		if messages, err = unix.ParseSocketControlMessage(control[:n]); err == nil && len(messages) == 1 {
			var got []int
			if got, err = unix.ParseUnixRights(&messages[0]); err == nil && len(got) == 1 {
				return got[0]
			}
		}
	}
	t.Errorf("no descriptor came: %v", err)
	return -1
}
