// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
)

// enterTimeout bounds Enter, whatever its context allows: a manager that hangs
// must not hang a run that works without it.
const enterTimeout = 3 * time.Second

// joining bounds Join, which a service does once, at its start.
const joining = 10 * time.Second

// Enter moves this process into a delegated scope of its own, where that is
// needed and possible.
//
// It does nothing, and says so with (false, nil), where groups can be made
// already. An error says why limits that need a group do not hold here; it is
// never more than that, and its hint is for doctor. Call it early: only what
// this process starts afterwards is in the scope too.
func Enter(ctx context.Context) (entered bool, err error) {
	return realHost().enter(ctx)
}

// Available reports, without changing anything, whether Enter would find a
// manager to ask; nil means yes.
func Available() error {
	_, err := realHost().socket()
	return err
}

// host is what the package sees of the machine; tests build another.
type host struct {
	euid, pid  int
	runtimeDir string
	systemBus  string
	ownGroup   string // /proc/self/cgroup
	detect     func() *cgroup.Host
	// stuck says why a service of this process could not be started again.
	stuck           func(*cgroup.Host) string
	toEnter, toJoin time.Duration
}

func realHost() host {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" { // as under su and cron
		dir = fmt.Sprintf("/run/user/%d", os.Geteuid())
	}
	stuck := func(h *cgroup.Host) string { why, _ := h.Returns(); return why }
	return host{os.Geteuid(), os.Getpid(), dir, "/run/dbus/system_bus_socket", "/proc/self/cgroup", cgroup.Detect, stuck, enterTimeout, joining}
}

func (h host) enter(ctx context.Context) (bool, error) {
	groups := h.detect()
	if groups.Why == "" {
		return false, nil
	}
	// Root has the whole hierarchy or, in a container, no manager; version 1
	// cannot be delegated safely.
	if h.euid == 0 || groups.Version != 2 {
		return false, unsupported(groups.Why, groups.Remedy, nil)
	}
	path, err := h.socket()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.toEnter)
	defer cancel()
	name := fmt.Sprintf("%s%d-%s.scope", cgroup.ScopePrefix, h.pid, strings.ToLower(rand.Text()[:8]))
	if err := h.ask(ctx, path, h.start(name)); err != nil {
		return false, unsupported("the user's systemd gave no scope", "see: journalctl --user -e", err)
	}
	if err := h.arrive(ctx, "/"+name); err != nil {
		return false, unsupported("systemd did not move this process into "+name, "see: journalctl --user -e", err)
	}
	if groups := h.detect(); groups.Why != "" {
		return true, unsupported(groups.Why, groups.Remedy, nil)
	}
	return true, nil
}

func unsupported(problem, hint string, cause error) error {
	return &sandbox.Error{Op: "enter a delegated scope", Kind: sandbox.ErrUnsupported, Problem: problem, Hint: hint, Cause: cause}
}

// sockets of the user's service manager: the bus, and the manager's own, which
// is there without a bus too.
var sockets = []string{"bus", privateSocket}

const privateSocket = "systemd/private"

// socket finds one that is the user's own. Whose it is matters: the name may
// come from an environment that another user prepared.
func (h host) socket() (string, error) {
	for _, name := range sockets {
		path := filepath.Join(h.runtimeDir, name)
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK && int(st.Uid) == h.euid {
			return path, nil
		}
	}
	return "", unsupported("there is no user service manager (no "+filepath.Join(h.runtimeDir, sockets[0])+")",
		"on a systemd host: sudo loginctl enable-linger "+strconv.Itoa(h.euid)+" and install dbus-user-session; elsewhere run caisson as root", nil)
}

// request is one method of a service manager, and what it is called with.
type request struct {
	method string
	args   []any
}

// ask makes one request of the manager on a socket.
func (h host) ask(ctx context.Context, path string, r request) error {
	var dialer net.Dialer
	socket, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	// The handshake knows no context; closing the socket ends it.
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	conn, err := dbus.NewConn(socket, dbus.WithContext(ctx))
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	defer conn.Close()
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(h.euid))}); err != nil {
		return err
	}
	if path != filepath.Join(h.runtimeDir, privateSocket) { // which is no bus and takes no greeting
		if err := conn.Hello(); err != nil {
			return err
		}
	}
	manager := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	return manager.CallWithContext(ctx, "org.freedesktop.systemd1.Manager."+r.method, 0, r.args...).Err
}

// start asks for the scope.
func (h host) start(name string) request {
	type property struct {
		Name  string
		Value dbus.Variant
	}
	type auxiliary struct {
		Name       string
		Properties []property
	}
	properties := []property{
		{"Description", dbus.MakeVariant("caisson: sandboxes of process " + strconv.Itoa(h.pid))},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(h.pid)})},
		{"Delegate", dbus.MakeVariant(true)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")}, // leave no failed unit behind
	}
	return request{"StartTransientUnit", []any{name, "fail", properties, []auxiliary{}}}
}

// arrive waits until this process is in a group that ends so: the manager answers
// when the job is queued, not when it is done.
func (h host) arrive(ctx context.Context, end string) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		text, err := os.ReadFile(h.ownGroup)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "0::") && strings.HasSuffix(strings.TrimSuffix(line, "\n"), end) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
