// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/docker"
)

// fixture is the smallest one in which the host's programs run.
func fixture(t *testing.T) *sandbox.Spec {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"usr", "etc", "home/user", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, "root", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []string{"bin", "lib", "lib64", "sbin"} {
		if err := os.Symlink("usr/"+l, filepath.Join(dir, "root", l)); err != nil {
			t.Fatal(err)
		}
	}
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	return &sandbox.Spec{
		ID:      fmt.Sprintf("sbx_%016d", time.Now().UnixNano()),
		Root:    sandbox.Root{Dir: open(t, filepath.Join(dir, "root")), Binds: []sandbox.Mount{{Source: open(t, "/usr"), Name: "/usr", Target: "/usr", Dir: true}}},
		Scratch: []sandbox.Scratch{{Target: "/home/user"}, {Target: "/tmp", Sticky: true}},
		User:    sandbox.DefaultUser(), Limits: sandbox.DefaultLimits(), StateDir: state,
	}
}

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// box is a living sandbox and its agent.
func box(t *testing.T, spec *sandbox.Spec) (sandbox.Instance, *guest.Client) {
	t.Helper()
	return boxAt(t, engineHost(t), spec)
}

func boxAt(t *testing.T, host string, spec *sandbox.Spec) (sandbox.Instance, *guest.Client) {
	t.Helper()
	return boxOn(t, docker.New(docker.Options{Host: host}), spec)
}

func boxOn(t *testing.T, d sandbox.Driver, spec *sandbox.Spec) (sandbox.Instance, *guest.Client) {
	t.Helper()
	b, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err, sandbox.Hint(err))
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	conn, err := b.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := guest.NewClient(conn, guest.Options{User: spec.User, Limits: spec.Limits})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return b, client
}

// status is a process of the host as /proc shows it.
type status map[string]string

func statusOf(t *testing.T, pid int) status {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	s := status{}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		s[key] = strings.TrimSpace(value)
	}
	return s
}

// find is the host's number of a process by its command line.
func find(t *testing.T, cmdline string) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			if b, _ := os.ReadFile(f); string(b) == cmdline {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
				return pid
			}
		}
	}
	t.Fatalf("there is no process %q", cmdline)
	return 0
}

// What code is on the host, seen from the host.
func TestPosture(t *testing.T) {
	_, client := box(t, fixture(t))
	seconds := strconv.Itoa(100000 + os.Getpid())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go client.Run(ctx, &sandbox.Exec{Argv: []string{"sleep", seconds}, Dir: "/home/user", Env: []string{"PATH=/usr/bin"}})
	pid := find(t, "sleep\x00"+seconds+"\x00")

	code := statusOf(t, pid)
	ids := strings.Fields(code["Uid"])
	uid, err := strconv.Atoi(ids[0])
	if err != nil || uid < 0x70000000 || code["Uid"] != code["Gid"] || code["Uid"] != strings.Join([]string{ids[0], ids[0], ids[0], ids[0]}, "\t") {
		t.Errorf("uid %q, gid %q: want one private id", code["Uid"], code["Gid"])
	}
	for key, want := range map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapAmb": "0000000000000000",
		"CapBnd": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "2", "Groups": "",
	} {
		if code[key] != want {
			t.Errorf("code: %s is %q, want %q", key, code[key], want)
		}
	}
	agent := statusOf(t, atoi(t, code["PPid"]))
	if got := strings.Fields(agent["Uid"])[0]; got != strconv.Itoa(uid-1) {
		t.Errorf("the agent is uid %s, want the neighbour of %d", got, uid)
	}
	first := statusOf(t, atoi(t, agent["PPid"]))
	for key, want := range map[string]string{
		"CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "00000000000000c0", "NoNewPrivs": "1", "Seccomp": "2",
		"Uid": agent["Uid"], "Gid": agent["Gid"], "Groups": "",
	} {
		if first[key] != want {
			t.Errorf("first process: %s is %q, want %q", key, first[key], want)
		}
	}
	for _, ns := range []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"} {
		own, _ := os.Readlink("/proc/self/ns/" + ns)
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err != nil || its == own {
			t.Errorf("it is in our %s namespace (%v)", ns, err)
		}
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil || !bytes.Contains(limits, []byte("Max core file size        0                    0")) {
		t.Errorf("core files: %v\n%s", err, limits)
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The first process has two capabilities and may make a user namespace; code
// has no way to either.
func TestCodeHasTheFilter(t *testing.T) {
	_, client := box(t, fixture(t))
	for name, script := range map[string]string{
		"a user namespace":   "import os; os.unshare(os.CLONE_NEWUSER)",
		"a mount namespace":  "import os; os.unshare(os.CLONE_NEWNS)",
		"clone's user":       "import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.syscall(56, 0x10000011, 0, 0, 0, 0); assert r >= 0",
		"the kernel's crypt": "import socket; socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
		"a netlink socket":   "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)",
		"a virtual socket":   "import socket; socket.socket(socket.AF_VSOCK)",
		"keyrings":           "import ctypes; assert ctypes.CDLL(None, use_errno=True).syscall(250, 0, -3, 1) >= 0",
		"ring buffers":       "import ctypes; assert ctypes.CDLL(None, use_errno=True).syscall(425, 4, 0) >= 0",
	} {
		// Older Pythons have no os.unshare; a C library has.
		script = strings.Replace(script, "import os; os.unshare(os.CLONE_NEWUSER)", "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0", 1)
		script = strings.Replace(script, "import os; os.unshare(os.CLONE_NEWNS)", "import ctypes; assert ctypes.CDLL(None).unshare(0x20000) == 0", 1)
		var errs bytes.Buffer
		exit, err := client.Run(t.Context(), &sandbox.Exec{Argv: []string{"python3", "-I", "-S", "-c", script}, Dir: "/home/user", Env: []string{"PATH=/usr/bin"}, Stderr: &errs})
		if err != nil || exit.Code == nil || *exit.Code != 1 || !bytes.Contains(errs.Bytes(), []byte("Error")) {
			t.Errorf("%s: %+v, %v: %s", name, exit, err, &errs)
		}
	}
}

// Nothing of a sandbox is left with the engine.
func TestSweepTakesWhatADeadOwnerLeft(t *testing.T) {
	spec, neighbour := fixture(t), fixture(t)
	d := docker.New(docker.Options{Host: engineHost(t)})
	left, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	living, client := box(t, neighbour)
	if err := d.Sweep(t.Context(), spec.ID, spec.StateDir); err != nil {
		t.Error(err)
	}
	select {
	case <-left.Ended():
	case <-time.After(time.Minute):
		t.Error("it lives on")
	}
	if err := left.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	for _, id := range []string{spec.ID, "sbx_doesnotexist0000", "../" + neighbour.ID, ""} {
		if err := d.Sweep(t.Context(), id, spec.StateDir); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	select {
	case <-living.Ended():
		t.Error("the neighbour was taken along")
	default:
	}
	if err := client.Health(t.Context()); err != nil {
		t.Error(err)
	}
}
