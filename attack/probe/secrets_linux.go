// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func pointer(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// environments reads those of all processes that it can see.
func (p *prober) environments() {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range append(files, "/proc/1/environ", fmt.Sprintf("/proc/%d/environ", p.Victim)) {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		data := contents(fd)
		unix.Close(fd)
		if c := canaries(data); c != "" {
			p.found("read "+name, data)
		}
	}
	p.say("read /proc/*/environ")
}

// descriptors looks at what it was born with.
func (p *prober) descriptors() {
	for fd := range 1024 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if data := contents(fd); canaries(data) != "" {
			p.found(fmt.Sprintf("read descriptor %d", fd), data)
		}
	}
	p.say("read all descriptors")
}

// dial tries a connection, and what it answers.
func (p *prober) dial(network, address string, wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		p.try("connect to "+network+" "+address, err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(wait))
	_, err = fmt.Fprintf(conn, "%s\n", p.Nonce)
	if network == "udp" {
		p.try("send to "+network+" "+address, err)
		return
	}
	p.try("connect to "+network+" "+address, nil)
	data := make([]byte, 4096)
	n, _ := conn.Read(data)
	p.found("the answer", data[:n])
}

// metadata are the addresses at which clouds give out credentials.
func (p *prober) metadata() {
	for _, address := range []string{"169.254.169.254:80", "169.254.170.2:80", "168.63.129.16:80", "100.100.100.200:80", "[fd00:ec2::254]:80"} {
		p.dial("tcp", address, 300*time.Millisecond)
	}
	for _, file := range []string{"/var/run/secrets/kubernetes.io/serviceaccount/token", "/run/secrets/kubernetes.io/serviceaccount/token"} {
		p.open(file, unix.O_RDONLY)
	}
}

func (p *prober) loopback() {
	p.dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.TCP), time.Second)
	p.dial("tcp", fmt.Sprintf("[::ffff:127.0.0.1]:%d", p.TCP), time.Second)
	p.dial("tcp", fmt.Sprintf("0.0.0.0:%d", p.TCP), time.Second)
	p.dial("udp", fmt.Sprintf("127.0.0.1:%d", p.UDP), time.Second)
}

func (p *prober) abstractSocket() { p.dial("unix", "@"+p.Abstract, time.Second) }

func (p *prober) socketFiles() {
	for _, dir := range []string{p.Outside, AtData, AtWorkspace} {
		p.dial("unix", dir+"/N04.sock", time.Second)
	}
	for _, name := range []string{
		"/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock",
		"/run/systemd/private", "/run/dbus/system_bus_socket", "/tmp/.X11-unix/X0", "/run/snapd.socket", os.Getenv("SSH_AUTH_SOCK"),
	} {
		if name != "" {
			p.dial("unix", name, 300*time.Millisecond)
		}
	}
}

// leaveGroup opens the lists by which processes are moved between control
// groups, and asks to be moved to the top.
func (p *prober) leaveGroup() {
	before := len(p.held)
	p.groupFiles("cgroup.procs", 16)
	p.groupFiles("tasks", 16)
	for _, fd := range p.held[before:] {
		_, err := unix.Write(fd, []byte("0\n"))
		p.try("move to another group", err)
	}
}
