// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/agent"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// asAgent makes the test binary the guest agent.
const asAgent = "CAISSON_TEST_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		becomeInit()
		agent.Main()
	}
	goleak.VerifyTestMain(m)
}

// becomeInit gives the agent's new namespaces what a level would.
func becomeInit() {
	check := func(what string, err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, what+":", err)
			os.Exit(1)
		}
	}
	signal.Ignore(syscall.SIGUSR2, syscall.SIGPIPE) // as a careless level might
	check("private mounts", syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	check("/proc", syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""))
	check("/tmp", syscall.Mount("tmpfs", "/tmp", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "size=400m,mode=1777"))
	check("/home", syscall.Mount("tmpfs", "/home", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "size=100m,mode=755"))
	check("/home/user", os.Mkdir("/home/user", 0o755))
	check("/home/user", os.Chown("/home/user", 1000, 1000))
	// Names of its own, whatever the machine has.
	for file, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\nnobody:x:65534:65534::/nonexistent:/bin/false\ntoor:x:0:0::/root:/bin/sh\n",
		"group":  "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
	} {
		check(file, os.WriteFile("/home/"+file, []byte(text), 0o644))
		check(file, syscall.Mount("/home/"+file, "/etc/"+file, "", syscall.MS_BIND, ""))
		check(file, syscall.Unlink("/home/"+file))
	}
}

// box is an agent in a pid and mount namespace of its own.
type box struct {
	cmd    *exec.Cmd
	host   *os.File
	opener *wire.Opener
	log    *logBuffer
}

// newBox starts an agent with further flags. Its end takes everything inside
// with it.
func newBox(t testing.TB, flags ...string) *box {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make pid and mount namespaces")
	}
	fd, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fd {
		for _, o := range []int{syscall.SO_SNDBUF, syscall.SO_RCVBUF} {
			if err := syscall.SetsockoptInt(f, syscall.SOL_SOCKET, o, 4<<20); err != nil {
				t.Fatal(err)
			}
		}
	}
	syscall.SetNonblock(fd[0], true)
	theirs := os.NewFile(uintptr(fd[1]), "guest")
	b := &box{host: os.NewFile(uintptr(fd[0]), "host"), log: &logBuffer{}}
	mark := wire.NewMark()
	b.cmd = exec.Command("/proc/self/exe")
	b.cmd.Args = append([]string{"caisson-guest", "-user", "1000:1000:user:/home/user"}, flags...)
	// A binary with the race detector would wait a second before it ends.
	b.cmd.Env = []string{asAgent + "=1", agent.MarkVariable + "=" + mark.String(), "GORACE=atexit_sleep_ms=0"}
	b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr = theirs, b.log, b.log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
		// What a careless level would hand down; programs must not see it.
		Credential: &syscall.Credential{Groups: []uint32{0, 4, 27}},
	}
	secret, err := os.Open("/etc/shadow")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	b.cmd.ExtraFiles = []*os.File{secret}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	b.opener = wire.NewOpener(b.host, mark)
	t.Cleanup(func() {
		b.host.Close()
		late := time.AfterFunc(timeout, func() {
			t.Error("the agent did not end with its stream")
			b.cmd.Process.Kill()
		})
		err := b.cmd.Wait()
		late.Stop()
		if err != nil {
			t.Errorf("agent: %v", err)
		}
		if s := b.log.String(); s != "" {
			t.Errorf("the agent says:\n%s", s)
		}
	})
	return b
}

// user is who programs run as in tests.
func user() guest.Options { return guest.Options{User: sandbox.DefaultUser()} }

// dial begins a session with the box.
func (b *box) dial(t testing.TB, o guest.Options) *guest.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	conn, err := b.opener.Open(ctx)
	if err != nil {
		t.Fatalf("%v\n%s", err, b.log)
	}
	c, err := guest.NewClient(conn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// newClient is a session with a fresh box, as uid 1000.
func newClient(t testing.TB) *guest.Client {
	t.Helper()
	return newBox(t).dial(t, user())
}

// outcome is what came of a program.
type outcome struct {
	guest.Exit
	out, err string
}

func program(argv ...string) *sandbox.Exec {
	return &sandbox.Exec{Argv: argv, Dir: "/home/user", Env: []string{"PATH=/usr/bin:/bin", "HOME=/home/user"}}
}

func shell(script string) *sandbox.Exec { return program("/bin/bash", "-c", script) }

// run runs x to its end.
func run(t testing.TB, c *guest.Client, x *sandbox.Exec) (outcome, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var o, e bytes.Buffer
	if x.Stdout == nil {
		x.Stdout = &o
	}
	if x.Stderr == nil {
		x.Stderr = &e
	}
	exit, err := c.Run(ctx, x)
	return outcome{exit, o.String(), e.String()}, err
}

// output runs a script that must succeed and returns what it printed.
func output(t testing.TB, c *guest.Client, script string) string {
	t.Helper()
	o, err := run(t, c, shell(script))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	if o.Code == nil || *o.Code != 0 {
		t.Fatalf("%s: exit %v %s\n%s%s", script, o.Code, o.Signal, o.out, o.err)
	}
	return strings.TrimSpace(o.out)
}

// timeout is how long anything may take that a test waits for, on a machine that
// has other work.
const timeout = 2 * time.Minute

// eventually waits for a condition that nothing tells of. Between two looks it
// leaves the processor to what it waits for.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	late := time.After(timeout)
	for !f() {
		select {
		case <-late:
			t.Fatal("it did not happen: " + what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// waitForEnd ends when no process inside has one of the names that are its
// arguments. The kernel tells of each end.
const waitForEnd = `
import os, select, sys
def living():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f: name, state = f.read().rsplit(")", 1)
            if int(pid) != os.getpid() and name.split("(", 1)[1] in sys.argv[1:] and state.split()[0] != "Z":
                yield os.pidfd_open(int(pid))
        except (FileNotFoundError, ProcessLookupError): pass
while ends := list(living()):
    for end in ends: select.select([end], [], []); os.close(end)`

// gone waits until no process has one of the names, and the agent has reaped them.
func gone(t testing.TB, c *guest.Client, names ...string) {
	t.Helper()
	if o, err := run(t, c, program(append([]string{"python3", "-c", waitForEnd}, names...)...)); err != nil || *o.Code != 0 {
		t.Fatalf("waiting for the end of %q: %v %+v", names, err, o)
	}
	eventually(t, "no zombies", func() bool {
		return output(t, c, `ps -eo stat= | grep -c ^Z || true`) == "0"
	})
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
