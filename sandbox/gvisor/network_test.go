// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/egress"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/drivertest"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// connected is a fixture with a wire, and its router. localhost stands for a host
// of the internet: the one name that every resolver knows.
func connected(t *testing.T, allow ...string) (*sandbox.Spec, *egress.Router) {
	t.Helper()
	o := egress.Options{Wire: sandbox.WirePackets}
	for _, a := range allow {
		o.Rules.Allow = append(o.Rules.Allow, wire.Entry{Text: a})
	}
	r, err := egress.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := r.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	s := fixture(t)
	s.Network = &sandbox.Network{NIC: r.NIC(), Address: egress.Guest, Gateway: egress.Gateway, MTU: egress.MTU}
	// The tree is the test's own; a session has the file in the root.
	root := s.Root.Dir.Name()
	if err := os.WriteFile(root+"/etc/resolv.conf", []byte(image.ResolvConf(egress.Gateway)), 0o644); err != nil {
		t.Fatal(err)
	}
	return s, r
}

// inside runs Python in the fixture of s.
func inside(t *testing.T, s *sandbox.Spec, code string) string {
	t.Helper()
	var out, errs bytes.Buffer
	res, err := gvisor.New(gvisor.Options{DebugDir: os.Getenv("DBG")}).Run(t.Context(), s, &sandbox.Exec{
		Argv: []string{"/usr/bin/python3", "-c", code}, Dir: "/home/user", Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &errs,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != sandbox.StatusSuccess {
		t.Errorf("%+v\n%s", res, &errs)
	}
	return strings.TrimSpace(out.String())
}

// echo is a server of this machine's loopback.
func echo(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// attempts is a program that tries ways out and says how each ends: "open" is
// the answer that none but the first may give.
const attempts = `
import socket, sys
port = %d
def tcp(host, port):
    def go():
        s = socket.create_connection((host, port), 5)
        s.sendall(b"hello\n")
        return "open" if s.recv(10) == b"hello\n" else "shut"
    return go
def udp(host, port, kind=socket.SOCK_DGRAM, proto=0):
    def go():
        s = socket.socket(socket.AF_INET, kind, proto)
        s.settimeout(0.5)
        s.sendto(b"hello", (host, port))
        return "open " + repr(s.recv(100))
    return go
def v6():
    s = socket.socket(socket.AF_INET6)
    s.settimeout(5)
    s.connect(("2606:4700::1111", 443))
    return "open"
for name, go in [
    ("allowed", tcp("localhost", port)),
    ("another name", tcp("evil.test", port)),
    ("the host's loopback", tcp("127.0.0.1", port)),
    ("by number", tcp("93.184.216.34", port)),
    ("private", tcp("10.0.0.1", port)),
    ("metadata", tcp("169.254.169.254", 80)),
    ("gateway", tcp("198.18.0.1", port)),
    ("other resolver", udp("8.8.8.8", 53)),
    ("QUIC", udp("93.184.216.34", 443)),
    ("ping", udp("93.184.216.34", 0, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)),
    ("raw", udp("93.184.216.34", 0, socket.SOCK_RAW, 99)),
    ("IPv6", v6),
]:
    try:
        result = go()
    except Exception as e:
        result = "refused"
    print(name + ": " + result)
`

func TestNetwork(t *testing.T) {
	port := echo(t)
	s, r := connected(t, "localhost:*", "127.0.0.1:*") // no /etc/hosts inside: the resolver is asked
	got := inside(t, s, fmt.Sprintf(attempts, port))
	for i, line := range strings.Split(got, "\n") {
		name, result, _ := strings.Cut(line, ": ")
		t.Run(name, func(t *testing.T) {
			if want := map[bool]string{true: "open", false: "refused"}[i == 0]; result != want {
				t.Errorf("%s, want %s", result, want)
			}
		})
	}
	report := r.Close()
	if len(report.Connections) != 1 || report.Connections[0].Host != "localhost" {
		t.Errorf("%+v", report)
	}
	refused := map[string]bool{}
	for _, rec := range report.Refused {
		refused[string(rec.Protocol)+" "+rec.Host+rec.Address] = true
	}
	for _, want := range []string{"dns evil.test", "tcp 93.184.216.34", "tcp 10.0.0.1", "tcp 169.254.169.254", "tcp 198.18.0.1", "udp 8.8.8.8", "udp 93.184.216.34"} {
		t.Run("record of "+want, func(t *testing.T) {
			if !refused[want] {
				t.Errorf("there is none: %v", refused)
			}
		})
	}
}

// An ordinary user: no capability to make a network is needed.
func TestNetworkAsNobody(t *testing.T) { drivertest.AsUser(t, 65534, "TestNetwork") }

// A router that dies closes the network, and the sandbox goes on without.
func TestNetworkWithoutRouter(t *testing.T) {
	port := echo(t)
	s, r := connected(t, "localhost:*", "127.0.0.1:*")
	p, err := os.FindProcess(r.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	got := inside(t, s, fmt.Sprintf(`
import socket
try:
    print(socket.create_connection(("198.18.1.0", %d), 1))
except Exception as e:
    print("refused")
`, port))
	if got != "refused" {
		t.Error(got)
	}
}
