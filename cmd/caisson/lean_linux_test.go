// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
)

// joined is the file that make build has made, with a state directory of its own in
// which a first run has kept what it carries.
func joined(t *testing.T) string {
	t.Helper()
	program := os.Getenv("CAISSON")
	if program == "" {
		t.Skip("there is only one program in what go build makes; make test has the other")
	}
	t.Setenv("CAISSON_STATE", filepath.Join(t.TempDir(), "state"))
	for _, level := range []string{"process", "gvisor"} {
		if which, out := ran(t, program, "", "run", "--isolation", level, "--", "echo", "first"); which != "whole" || out != "first\n" {
			t.Fatalf("the first run was in the %s program: %s", which, out)
		}
	}
	// The router may be kept since the first of these.
	ran(t, program, "", "run", "--isolation", networked(), "--allow", "127.0.0.1:1", "--", "true")
	return program
}

// networked is a level that has a network for this user: the process level is one for
// whoever may make the device.
func networked() string {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return "gvisor"
	}
	f.Close()
	return "process"
}

// ran says in which of the two programs a command line was carried out, by the packages
// that it had to initialise, and what it printed.
func ran(t *testing.T, program, stdin string, args ...string) (which, out string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var stderr, stdout bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	_ = cmd.Run()
	which = "lean"
	if strings.Contains(stderr.String(), "init github.com/danielgtaylor/huma") {
		which = "whole"
	}
	said := ""
	for line := range strings.Lines(stderr.String()) {
		// Some hosts have one thing more to say: which default limit is off.
		if !strings.HasPrefix(line, "init ") && !strings.HasPrefix(line, "caisson: limit ") {
			said += line
		}
	}
	return which, stdout.String() + said
}

// A run begins in the lean program, and what that has no packages for is carried out
// by the other one, as if it had been called.
func TestLean(t *testing.T) {
	program := joined(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name+".yaml")
		if err := os.WriteFile(path, []byte("version: 1\nisolation: process\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	policy := file("plain", "commands: {allow: [cat, sh]}\n")
	for _, c := range []struct{ line, stdin, which, says string }{
		{"run --isolation process -- echo one", "", "lean", "one"},
		{"run -- echo one", "", "lean", "one"},
		{"run --isolation " + networked() + " --allow 127.0.0.1:1 -- echo one", "", "lean", "one"},
		{"run --isolation process --json -- echo one", "", "lean", `"status":"success"`},
		{"run --isolation process -- cat", "input", "lean", "input"},
		{"run --isolation process --lang sh -", "echo $((6*7))", "lean", "42"},
		{"run --isolation process -e A=--image -- printenv A", "", "lean", "--image"},
		{"run --isolation process -- echo --policy -t --image", "", "lean", "--policy -t --image"},
		{"run --isolation process --no-such-flag", "", "lean", "there is no flag --no-such-flag"},
		{"version", "", "whole", "gvisor"},
		{"run --help", "", "whole", "Run one program in a sandbox"},
		{"run --isolation process --collect *.txt -- touch a.txt", "", "whole", ""},
		{"run --policy " + policy + " -- cat", "input", "lean", "input"},
		{"run --policy " + policy + " -- id", "", "lean", "denied"},
		{"run --policy /dev/stdin -- cat", "version: 1\nisolation: process\ncommands: {allow: [echo]}\n", "whole", "denied"},
		{"run --policy " + policy + "x -- cat", "", "whole", "there is no such policy file"},
		{"run --policy " + file("fault", "nonsense: 1\n") + " -- cat", "", "whole", "nonsense"},
		{"run --policy " + file("image", "image: ./no-such.tar\n") + " -- cat", "", "whole", "no-such.tar"},
		{"run --policy " + file("risk", "risk: {high: [\"call.argv[0] == 'cat'\"], on_high: deny}\n") + " -- cat", "", "whole", "denied"},
		{"run --policy " + file("code", "code: {python: {deny_imports: [os]}}\n") + " --lang python -", "import os", "whole", "denied"},
		{"run --policy " + file("collect", "files: {collect: ['*.txt']}\n") + " --collect *.txt -- touch a.txt", "", "whole", ""},
		{"run --policy " + file("ask", "commands: {allow: [cat], ask: [cat]}\n") + " -- cat", "", "whole", ""},
		{"run --isolation process --image ./no-such.tar -- true", "", "whole", "no-such.tar"},
		{"run --isolation process -t -- tty", "", "whole", "/dev/pts/"},
		{"run --isolation nonsense -- true", "", "whole", "docker"},
		{"run", "", "whole", "there is nothing to run"},
		// What package begin does not see, since it knows no flags, package cli does.
		{"run --isolation process --mount /bin/true:/data --deny -- -t -- tty", "", "whole", "/dev/pts/"},
		{"run --isolation process --mount /bin/true:/data --deny -- --collect *.txt --lang sh -", "echo late", "whole", "late"},
		{"run --isolation process --workdir -- --tty -- true", "", "whole", "--workdir"},
	} {
		t.Run(c.line, func(t *testing.T) {
			t.Chdir(t.TempDir())
			which, out := ran(t, program, c.stdin, strings.Fields(c.line)...)
			if which != c.which || !strings.Contains(out, c.says) {
				t.Errorf("in the %s program, want the %s one: %s", which, c.which, out)
			}
		})
	}
}

// Whatever else stands in a command line, what would have to be unpacked is the other
// program's: package begin takes an argument of the program's for a flag of caisson's.
func TestLeanUnpacksNothing(t *testing.T) {
	program := joined(t)
	network := filepath.Join(t.TempDir(), "network.yaml")
	if err := os.WriteFile(network, []byte("version: 1\nisolation: "+networked()+"\nnetwork: {allow: ['127.0.0.1:1']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"run --lang sh --code true x --isolation process",
		"run --isolation process --mount /bin/true:/data --deny -- --isolation gvisor -- true",
		"run --isolation " + networked() + " --mount /bin/true:/data --deny -- --allow 127.0.0.1:1 -- true",
		"run --isolation " + networked() + " --policy " + network + " -- true",
	} {
		t.Run(line, func(t *testing.T) {
			for _, kept := range shelved(t) {
				if err := os.Remove(kept); err != nil {
					t.Fatal(err)
				}
			}
			if which, out := ran(t, program, "", strings.Fields(line)...); which != "whole" || strings.Contains(out, "start") {
				t.Errorf("in the %s program: %s", which, out)
			}
		})
	}
}

// What goes from the shelf when a run has begun it cannot unpack, and says that the next one
// will.
func TestLeanWithoutWhatWasKept(t *testing.T) {
	program := joined(t)
	run := func() *exec.Cmd { return exec.Command(program, "run", "--lang", "sh", "-") }
	cmd := run()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = in, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.WriteString("true"); err != nil {
		t.Fatal(err)
	}
	// What comes on standard input is read after it was looked whether all is kept.
	for unread := 1; unread > 0 && t.Context().Err() == nil; {
		if unread, err = unix.IoctlGetInt(int(out.Fd()), unix.TIOCINQ); err != nil {
			t.Fatal(err)
		}
	}
	for _, kept := range shelved(t) {
		if err := os.Remove(kept); err != nil {
			t.Fatal(err)
		}
	}
	out.Close()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 125 || !strings.Contains(said.String(), "hint: run it again: what is missing is unpacked then") {
		t.Errorf("%v: %s", err, said.String())
	}
	again := run()
	again.Stdin = strings.NewReader("true")
	if said, err := again.CombinedOutput(); err != nil {
		t.Errorf("again: %v: %s", err, said)
	}
}

// What a dead owner left is the other program's to take away, which has all levels: a
// container that nobody looks for any more would stay.
func TestLeanLeavesTheDead(t *testing.T) {
	program := joined(t)
	dead := filepath.Join(os.Getenv("CAISSON_STATE"), "run", "sbx_0123456789abcdef")
	if err := os.Mkdir(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, "owner.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "none"))
	for _, want := range []string{"whole", "lean"} {
		if which, out := ran(t, program, "once", "run", "--isolation", "process", "--", "cat"); which != want || out != "once" {
			t.Errorf("in the %s program, want the %s one: %s", which, want, out)
		}
	}
	if _, err := os.Lstat(dead); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// What was begun is ended before the other program takes over, which would have it for a
// child that it does not know of.
func TestLeanLeavesNoChild(t *testing.T) {
	program := joined(t)
	for range 5 {
		cmd := exec.Command(program, "run", "--mount", "/bin/true:/data", "--deny", "--", "--collect", "*", "--", "cat")
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(in, "now\n")
		_, err := io.ReadFull(out, make([]byte, 4))
		listed, _ := filepath.Glob("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/task/*/children")
		if len(listed) == 0 {
			t.Error("the kernel tells no children")
		}
		for _, list := range listed {
			children, _ := os.ReadFile(list)
			for _, child := range strings.Fields(string(children)) {
				if stat, _ := os.ReadFile("/proc/" + child + "/stat"); strings.Contains(string(stat), ") Z ") {
					t.Errorf("it has a dead child: %s", stat)
				}
			}
		}
		in.Close()
		if err = errors.Join(err, cmd.Wait()); err != nil {
			t.Fatal(err)
		}
	}
}

// Who has a run ended when they end, has so in the other program, too: the kernel keeps
// that for the thread that was begun with, and not for the others.
func TestLeanEndsWithItsCaller(t *testing.T) {
	program := joined(t)
	for _, level := range []string{"process", "gvisor"} {
		policy := filepath.Join(t.TempDir(), "risk.yaml")
		if err := os.WriteFile(policy, []byte("version: 1\nrisk: {high: ['false']}\nisolation: "+level+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "run", "--timeout", "20s", "--policy", policy, "--", "sh", "-c", "echo begun; cat")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if err := threads.Ending(func() error {
			if err := cmd.Start(); err != nil {
				return err
			}
			_, err := io.ReadFull(out, make([]byte, len("begun\n")))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		in.Close()
		if ended := cmd.ProcessState.Sys().(syscall.WaitStatus); ended.Signal() != syscall.SIGKILL {
			t.Errorf("%s: it ended as %v", level, cmd.ProcessState)
		}
	}
	sweeps(t, program)
}

// sweeps has later runs take away what killed ones left, a control group for one: the
// state directory, by which they find it, goes with the tests. What was killed may still
// be ending when the first of them looks.
func sweeps(t *testing.T, program string) {
	t.Helper()
	for late := time.After(time.Minute); ; {
		if out, err := exec.Command(program, "run", "--isolation", "process", "--", "true").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		left, err := filepath.Glob(filepath.Join(os.Getenv("CAISSON_STATE"), "run", "sbx_*"))
		if err != nil || len(left) == 0 {
			return
		}
		select {
		case <-late:
			t.Fatalf("what killed runs left stays: %q", left)
		default:
		}
	}
}

// shelved are the programs that are kept in the state directory.
func shelved(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(os.Getenv("CAISSON_STATE"), "run", ".engine-*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("nothing is kept: %v", err)
	}
	return names
}
