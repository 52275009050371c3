// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/caisson-run/caisson/egress"
	"github.com/caisson-run/caisson/egress/guesttest"
	"github.com/caisson-run/caisson/egress/router"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

func TestMain(m *testing.M) {
	if os.Args[0] == wire.Argv0 {
		router.Main()
	}
	os.Exit(m.Run())
}

// eachUser runs a test as it is and, by root, once more as uid 65534.
func eachUser(t *testing.T, test func(t *testing.T)) {
	t.Run("uid "+strconv.Itoa(os.Geteuid()), test)
	const nobody = "CAISSON_TEST_AS_NOBODY"
	if os.Geteuid() != 0 || os.Getenv(nobody) != "" {
		return
	}
	t.Run("uid 65534", func(t *testing.T) {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		readable := filepath.Join(t.TempDir(), "test")
		if out, err := exec.Command("cp", exe, readable).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for dir := filepath.Dir(readable); dir != "/"; dir = filepath.Dir(dir) {
			info, err := os.Stat(dir)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm()&0o001 == 0 && strings.HasPrefix(dir, os.TempDir()+"/") {
				_ = os.Chmod(dir, 0o755)
			}
		}
		parent, _, _ := strings.Cut(strings.TrimPrefix(t.Name(), "/"), "/")
		cmd := exec.Command(readable, "-test.run", "^"+parent+"$", "-test.v")
		cmd.Env = append(os.Environ(), nobody+"=1", "TMPDIR=/tmp", "HOME=/")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}

// router starts one with a guest on its wire.
func startRouter(t *testing.T, o egress.Options) (*egress.Router, *guesttest.Guest) {
	t.Helper()
	o.Wire = sandbox.WirePackets
	r, err := egress.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), guesttest.Wait)
	defer cancel()
	if err := r.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	g := guesttest.New(t, r.NIC(), egress.MTU, egress.Guest, egress.Gateway)
	t.Cleanup(func() { g.Close(); r.Close() })
	return r, g
}

func allow(entries ...string) wire.Rules {
	var r wire.Rules
	for _, e := range entries {
		r.Allow = append(r.Allow, wire.Entry{Text: e, From: "--allow"})
	}
	return r
}

// local is a server of this machine's loopback that echoes; localhost is the
// one name that every resolver knows.
func local(t *testing.T) (port int) {
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
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func TestRouterProcess(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		port := local(t)
		r, g := startRouter(t, egress.Options{Rules: allow("localhost:*", "127.0.0.1:*")})
		c, err := g.DialName("localhost", port)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "hello")
		b := make([]byte, 5)
		_ = c.SetReadDeadline(time.Now().Add(guesttest.Wait))
		if _, err := io.ReadFull(c, b); string(b) != "hello" {
			t.Errorf("%q, %v", b, err)
		}
		c.Close()
		for range 3 {
			if m := g.Query("evil.test", dnsmessage.TypeA); m.RCode != dnsmessage.RCodeNameError {
				t.Errorf("evil.test: %v", m.RCode)
			}
		}
		if c, err := g.Dial("93.184.216.34:443"); err == nil {
			c.Close()
			t.Error("connected by number")
		}
		g.Close()
		report := r.Close()
		if report.Incomplete || len(report.Connections) != 1 || report.Totals.Refused != 4 || len(report.Refused) != 2 {
			t.Fatalf("%+v", report)
		}
		if c := report.Connections[0]; c.Host != "localhost" || c.Address != "127.0.0.1" || c.Sent != 5 || c.Received != 5 || c.From != "--allow" {
			t.Errorf("%+v", c)
		}
		if d := report.Refused[0]; d.Host != "evil.test" || d.Count != 3 {
			t.Errorf("%+v", d)
		}
	})
}

// packet is one of UDP to an address that nothing leads to.
func packet(version byte) []byte {
	b := make([]byte, 29)
	b[0], b[3], b[8], b[9] = version<<4|5, 29, 64, 17
	copy(b[12:], egress.Guest.AsSlice())
	copy(b[16:], []byte{192, 0, 2, 1})
	b[21], b[23], b[25] = 9, 53, 9
	return b
}

// A network that is not used has no router; the words of IPv6 that a kernel inside may
// say by itself are no use. What was sent is read, however soon the end comes.
func TestStartedByAPacket(t *testing.T) {
	for _, tc := range []struct {
		sent    [][]byte
		refused int
		runs    bool
	}{
		{nil, 0, false},
		{[][]byte{packet(6), packet(6)}, 0, false},
		{[][]byte{packet(6), packet(4), packet(6)}, 1, true},
		{slices.Repeat([][]byte{packet(6)}, 65), 0, true}, // nothing that a kernel says by itself
	} {
		r, err := egress.Start(egress.Options{Wire: sandbox.WirePackets, Rules: allow("example.com")})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Started(); err != nil {
			t.Fatal(err)
		}
		for _, p := range tc.sent {
			if _, err := r.NIC().Write(p); err != nil {
				t.Fatal(err)
			}
		}
		report := r.Close()
		if report.Incomplete || len(report.Refused) != tc.refused || (r.PID() != 0) != tc.runs {
			t.Errorf("after %d packets: process %d, %+v", len(tc.sent), r.PID(), report)
		}
	}
}

// What is foreseen is there before the first packet, which has no other; one that is
// not used says nothing, and is gone.
func TestForeseen(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		for _, sent := range []int{0, 1, 3} {
			r, err := egress.Start(egress.Options{Wire: sandbox.WirePackets, Rules: allow("example.com")})
			if err != nil {
				t.Fatal(err)
			}
			r.Foresee(0)
			r.Foresee(0)
			pid := r.PID()
			if pid == 0 {
				t.Error("it was not started")
			}
			for range sent {
				if _, err := r.NIC().Write(packet(4)); err != nil {
					t.Fatal(err)
				}
			}
			if report := r.Close(); report.Incomplete || len(report.Refused) != min(1, sent) || report.Totals.Refused != int64(sent) {
				t.Errorf("after %d packets: %+v", sent, report)
			}
			if r.PID() != pid {
				t.Errorf("after %d packets: %d took the place of %d", sent, r.PID(), pid)
			}
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("%d is still there (%v)", pid, err)
			}
		}
	})
}

// The death of one that waits is told, packets or not.
func TestForeseenDies(t *testing.T) {
	ended := make(chan error, 1)
	r, err := egress.Start(egress.Options{
		Wire: sandbox.WirePackets, Rules: allow("example.com"), Ended: func(_ string, err error) { ended <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Foresee(0)
	if err := syscall.Kill(r.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(guesttest.Wait):
		t.Error("nobody is told")
	}
}

// A router that waits for its first packet is one that others may wait for, and whose
// death closes the network.
func TestForeseenAndWanted(t *testing.T) {
	ended := make(chan error, 1)
	r, err := egress.Start(egress.Options{
		Wire: sandbox.WirePackets, Rules: allow("example.com"), Ended: func(_ string, err error) { ended <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Foresee(0)
	pid := r.PID()
	if err := r.Change(t.Context(), allow("other.test")); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(guesttest.Wait):
		t.Error("nobody is told")
	}
	r.Close()
	r.Foresee(0)
	if r.PID() != pid {
		t.Error("one was started after the end")
	}
}

// A router that cannot work is told when it is needed, and nothing goes through.
func TestStartedInVain(t *testing.T) {
	ended := make(chan error, 1)
	r, err := egress.Start(egress.Options{Wire: sandbox.WirePackets, Rules: allow("*"), Ended: func(_ string, err error) { ended <- err }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.NIC().Write(packet(4)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !strings.Contains(err.Error(), `"*"`) {
			t.Error(err)
		}
	case <-time.After(guesttest.Wait):
		t.Error("nobody is told")
	}
	if report := r.Close(); !report.Incomplete {
		t.Errorf("%+v", report)
	}
}

// TestChange: rules that are in force are changed, and what cannot be read
// allows nothing.
func TestChange(t *testing.T) {
	port := local(t)
	ended := make(chan error, 1)
	r, g := startRouter(t, egress.Options{Rules: allow("localhost:*", "127.0.0.1:*"), Ended: func(_ string, err error) { ended <- err }})
	c, err := g.DialName("localhost", port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "x")
	if n, err := r.Live(t.Context()); err != nil || n != 1 {
		t.Errorf("%d connections are live, %v, want 1", n, err)
	}
	if err := r.Change(t.Context(), allow("other.test")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(guesttest.Wait))
	if _, err := io.Copy(io.Discard, c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it stays open: %v", err)
	}
	for n, err := 1, error(nil); n > 0; { // the router takes it from its list beside
		if n, err = r.Live(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Change(t.Context(), allow("not a host")); err == nil {
		t.Error("rules that cannot be read are in force")
	}
	select {
	case err := <-ended:
		if !strings.Contains(err.Error(), "not a host") {
			t.Error(err)
		}
	case <-time.After(guesttest.Wait):
		t.Error("rules that cannot be read do not end the router")
	}
}

func TestOrderRefused(t *testing.T) {
	r, err := egress.Start(egress.Options{Wire: sandbox.WirePackets, Rules: allow("*")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), `"*"`) {
		t.Errorf("%v", err)
	}
}

// The router's death is the end of the network, and is told.
func TestRouterKilled(t *testing.T) {
	ended := make(chan error, 1)
	r, g := startRouter(t, egress.Options{Rules: allow("localhost:*", "127.0.0.1:*"), Ended: func(_ string, err error) { ended <- err }})
	port := local(t)
	c, err := g.DialName("localhost", port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := syscall.Kill(r.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(guesttest.Wait):
		t.Fatal("nobody is told")
	}
	fmt.Fprint(c, "anybody?")
	_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n > 0 {
		t.Errorf("somebody answers: %v", err)
	}
	g.Close()
	if report := r.Close(); !report.Incomplete {
		t.Errorf("%+v", report)
	}
}

func TestBudgetIsTold(t *testing.T) {
	port := local(t)
	ended := make(chan string, 1)
	_, g := startRouter(t, egress.Options{Rules: allow("localhost:*", "127.0.0.1:*"), Budget: wire.Budget{Egress: 1000},
		Ended: func(budget string, _ error) { ended <- budget }})
	c, err := g.DialName("localhost", port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write(make([]byte, 2000))
	select {
	case which := <-ended:
		if which != "egress" {
			t.Error(which)
		}
	case <-time.After(guesttest.Wait):
		t.Error("nobody is told")
	}
}

// What the process is on the host.
func TestPosture(t *testing.T) {
	eachUser(t, func(t *testing.T) {
		// Something that a careless caller left open for all children.
		leak, err := syscall.Open("/etc/passwd", syscall.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(leak)
		r, _ := startRouter(t, egress.Options{Rules: allow("localhost:*")})
		status := fields(t, fmt.Sprintf("/proc/%d/status", r.PID()))
		want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapAmb": "0000000000000000", "Groups": ""}
		if os.Geteuid() != 0 {
			delete(want, "Groups")
		}
		for key, value := range want {
			if status[key] != value {
				t.Errorf("%s is %q, want %q", key, status[key], value)
			}
		}
		uid, _, _ := strings.Cut(status["Uid"], "\t")
		if n, _ := strconv.Atoi(uid); os.Geteuid() == 0 && n < 0x70000000 || os.Geteuid() != 0 && n != os.Geteuid() {
			t.Errorf("it is uid %s", uid)
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", r.PID()))
		if err != nil || len(threads) < 2 {
			t.Fatalf("%q, %v", threads, err)
		}
		for _, file := range threads {
			if s := fields(t, file); s["Seccomp"] != "2" || s["NoNewPrivs"] != "1" {
				t.Errorf("%s: Seccomp %s, NoNewPrivs %s", file, s["Seccomp"], s["NoNewPrivs"])
			}
		}
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", r.PID()))
		if err != nil || !strings.Contains(string(limits), "Max core file size        0 ") {
			t.Errorf("limits, %v:\n%s", err, limits)
		}
		if os.Geteuid() == 0 {
			checkDescriptors(t, r.PID())
		}
	})
}

func fields(t *testing.T, file string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		all[k] = strings.TrimSpace(v)
	}
	return all
}

// checkDescriptors wants nothing of this host but what a router needs.
func checkDescriptors(t *testing.T, pid int) {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) < 5 {
		t.Fatalf("%q, %v", links, err)
	}
	for _, l := range links {
		to, err := os.Readlink(l)
		if err != nil {
			continue
		}
		known := false
		for _, prefix := range []string{"/dev/null", "socket:", "anon_inode:[eventpoll]", "anon_inode:[eventfd]", "/sys/fs/cgroup/"} { // the last: the Go runtime looks how many processors it has
			known = known || strings.HasPrefix(to, prefix)
		}
		if !known {
			t.Errorf("it holds %s: %s", l, to)
		}
	}
}
