// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

func TestMain(m *testing.M) {
	if os.Getenv("CAISSON_SCOPE_HELPER") != "" {
		if err := enterForReal(); err != nil {
			fmt.Println(err, "|", sandbox.Hint(err))
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// manager is a service manager on a socket, as far as one request needs it.
type manager struct {
	t       *testing.T
	private bool   // no bus: a Hello is wrong
	refuse  string // name of the D-Bus error to answer with
	silent  bool   // take the connection and never answer
	lazy    bool   // answer, but move no process
	late    int    // refuse so many requests to attach first
	group   string // the caller's /proc/self/cgroup
	got     []any  // body of the request
}

func (m *manager) serve(path string) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		m.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for { // one request each, one after another
			c, err := l.Accept()
			if err != nil {
				return
			}
			if err := m.talk(c); err != nil {
				m.t.Log("manager:", err)
			}
			c.Close()
		}
	}()
	m.t.Cleanup(func() { l.Close(); <-done })
}

func (m *manager) talk(c net.Conn) error {
	r := bufio.NewReader(c)
	if b, err := r.ReadByte(); err != nil || b != 0 {
		return fmt.Errorf("no zero byte first: %v", err)
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		switch word, _, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case m.silent:
		case strings.TrimSpace(line) == "AUTH":
			fmt.Fprint(c, "REJECTED EXTERNAL\r\n")
		case word == "AUTH": // who it is comes from the socket
			fmt.Fprint(c, "DATA\r\n")
		case word == "DATA":
			fmt.Fprint(c, "OK 0123456789abcdef0123456789abcdef\r\n")
		case word == "BEGIN":
			return m.messages(c, r)
		default:
			fmt.Fprint(c, "ERROR\r\n")
		}
	}
}

func (m *manager) messages(c net.Conn, r *bufio.Reader) error {
	for {
		call, err := dbus.DecodeMessage(r)
		if err != nil {
			return err
		}
		answer := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
		}}
		switch member := call.Headers[dbus.FieldMember].Value(); {
		case member == "Hello" && !m.private:
			answer.Body = []any{":1.7"}
		case member == "StartTransientUnit" && m.refuse == "":
			m.got = call.Body
			answer.Body = []any{dbus.ObjectPath("/org/freedesktop/systemd1/job/1")}
			if !m.lazy {
				name := call.Body[0].(string)
				if err := os.WriteFile(m.group, []byte("0::/user.slice/app.slice/"+name+"\n"), 0o600); err != nil {
					return err
				}
			}
		case member == "AttachProcessesToUnit" && m.late == 0 && m.refuse == "":
			m.got = call.Body
			if !m.lazy {
				at := "0::/system.slice/" + call.Body[0].(string) + call.Body[1].(string)
				if err := os.WriteFile(m.group, []byte(at+"\n"), 0o600); err != nil {
					return err
				}
			}
		default:
			if member == "AttachProcessesToUnit" {
				m.late--
			}
			answer.Type = dbus.TypeError
			answer.Headers[dbus.FieldErrorName] = dbus.MakeVariant(cmp.Or(m.refuse, "org.freedesktop.DBus.Error.UnknownMethod"))
			answer.Body = []any{"no, sorry"}
		}
		if len(answer.Body) > 0 {
			answer.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(answer.Body...))
		}
		var wire bytes.Buffer
		if err := answer.EncodeTo(&wire, binary.LittleEndian); err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(wire.Bytes()[8:], call.Serial()) // ours; 0 is not allowed
		if _, err := c.Write(wire.Bytes()); err != nil {
			return err
		}
	}
}

// user is a host seen by uid 1000, whose sockets the tests made.
func user(t *testing.T, m *manager, groups *cgroup.Host) host {
	t.Helper()
	dir := t.TempDir()
	m.t, m.group = t, filepath.Join(dir, "cgroup")
	if err := os.WriteFile(m.group, []byte("0::/user.slice/session-2.scope\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return host{euid: 1000, pid: 77, toEnter: 5 * time.Minute, runtimeDir: dir, ownGroup: m.group, detect: func() *cgroup.Host {
		if text, _ := os.ReadFile(m.group); strings.Contains(string(text), "/"+cgroup.ScopePrefix) {
			return &cgroup.Host{Version: 2}
		}
		return groups
	}}
}

func own(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() == 1000 {
		return
	}
	if err := os.Chown(path, 1000, 1000); err != nil {
		t.Skip("needs root, to give the socket to uid 1000")
	}
}

var undelegated = &cgroup.Host{Version: 2, Why: "nothing delegated", Remedy: "delegate"}

func TestEnter(t *testing.T) {
	for _, socket := range sockets {
		t.Run(socket, func(t *testing.T) {
			m := &manager{private: socket != "bus"}
			h := user(t, m, undelegated)
			m.serve(filepath.Join(h.runtimeDir, socket))
			own(t, filepath.Join(h.runtimeDir, socket))
			entered, err := h.enter(t.Context())
			if !entered || err != nil {
				t.Fatalf("%v, %v", entered, err)
			}
			if name := m.got[0].(string); !strings.HasPrefix(name, "caisson-77-") || !strings.HasSuffix(name, ".scope") || m.got[1] != "fail" {
				t.Errorf("asked for %v %v", m.got[0], m.got[1])
			}
			properties := fmt.Sprint(m.got[2])
			for _, want := range []string{"[PIDs @au [77]]", "[Delegate true]"} {
				if !strings.Contains(properties, want) {
					t.Errorf("properties %s lack %s", properties, want)
				}
			}
		})
	}
}

func TestNotEntered(t *testing.T) {
	for _, tt := range []struct {
		name    string
		groups  *cgroup.Host
		manager *manager // nil: no socket
		change  func(t *testing.T, h *host)
		problem string // part of it; "" wants no error at all
	}{
		{"delegated already", &cgroup.Host{Version: 2}, nil, nil, ""},
		{"version 1", &cgroup.Host{Version: 1, Why: "only root", Remedy: "be root"}, &manager{}, nil, "only root"},
		{"root in a container", undelegated, &manager{}, func(t *testing.T, h *host) { h.euid = 0 }, "nothing delegated"},
		{"no manager", undelegated, nil, nil, "no user service manager"},
		{"another user's socket", undelegated, &manager{}, func(t *testing.T, h *host) { h.euid = 1001 }, "no user service manager"},
		{"refused", undelegated, &manager{refuse: "org.freedesktop.systemd1.UnitExists"}, nil, "gave no scope"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := tt.manager
			if m == nil {
				m = &manager{}
			}
			h := user(t, m, tt.groups)
			if tt.manager != nil {
				m.serve(filepath.Join(h.runtimeDir, "bus"))
				own(t, filepath.Join(h.runtimeDir, "bus"))
			}
			if tt.change != nil {
				tt.change(t, &h)
			}
			entered, err := h.enter(t.Context())
			if entered || (err == nil) != (tt.problem == "") {
				t.Fatalf("%v, %v", entered, err)
			}
			if err != nil && (!errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), tt.problem) || sandbox.Hint(err) == "") {
				t.Errorf("%v (hint %q), want %q and a hint", err, sandbox.Hint(err), tt.problem)
			}
			if m.got != nil && tt.manager.refuse == "" {
				t.Errorf("the manager was asked: %v", m.got)
			}
		})
	}
}

// A manager that hangs costs the timeout that the context gives it, or enter's own.
func TestHangingManager(t *testing.T) {
	for name, m := range map[string]*manager{"in the handshake": {silent: true}, "in the job": {lazy: true}} {
		t.Run(name, func(t *testing.T) {
			h := user(t, m, undelegated)
			m.serve(filepath.Join(h.runtimeDir, "bus"))
			own(t, filepath.Join(h.runtimeDir, "bus"))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			entered, err := h.enter(ctx)
			if entered || !errors.Is(err, sandbox.ErrUnsupported) || time.Since(began) > h.toEnter/2 {
				t.Errorf("%v, %v after %v", entered, err, time.Since(began))
			}
			h.toEnter = 100 * time.Millisecond
			if entered, err := h.enter(t.Context()); entered || !errors.Is(err, sandbox.ErrUnsupported) {
				t.Errorf("%v, %v", entered, err)
			}
		})
	}
}

func TestAvailableNamesWhatIsMissing(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if err := Available(); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(sandbox.Hint(err), "enable-linger") {
		t.Errorf("%v, hint %q", err, sandbox.Hint(err))
	}
}
