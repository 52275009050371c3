// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// recordFile is a file of the record in the state directory.
func recordFile(name string) string { return filepath.Join(os.Getenv("CAISSON_STATE"), "audit."+name) }

// A run of the lean program is in the record, of which it opens no database.
func TestLeanRecord(t *testing.T) {
	program := joined(t)
	const run = "run --isolation process -- echo one"
	before, err := os.ReadFile(recordFile("db-wal"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if which, out := ran(t, program, "", strings.Fields(run)...); which != "lean" || out != "one\n" {
			t.Fatalf("in the %s program: %s", which, out)
		}
	}
	if after, err := os.ReadFile(recordFile("db-wal")); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the database was written to: %v", err)
	}
	if _, out := ran(t, program, "", "audit", "ls"); strings.Count(out, "echo one") != 3 {
		t.Errorf("%s", out)
	}
	if _, out := ran(t, program, "", "audit", "verify"); !strings.Contains(out, "all in order") {
		t.Errorf("%s", out)
	}
}

// What the tail cannot be relied on for is the other program's: to look at it takes the
// database.
func TestLeanLeavesTheTail(t *testing.T) {
	program := joined(t)
	for name, do := range map[string]func() error{
		"another boot": anotherBoot,
		"a database that somebody has touched": func() error {
			now := time.Now()
			return os.Chtimes(recordFile("db"), now, now)
		},
		"no tail": func() error {
			ran(t, program, "", "audit", "ls") // moves what is in it
			return os.Remove(recordFile("tail"))
		},
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"whole", "lean"} {
			if which, out := ran(t, program, "", "run", "--isolation", "process", "--", "echo", "one"); which != want || out != "one\n" {
				t.Errorf("%s: in the %s program, want the %s one: %s", name, which, want, out)
			}
		}
	}
	if _, out := ran(t, program, "", "audit", "verify"); !strings.Contains(out, "all in order") {
		t.Errorf("%s", out)
	}
}

// anotherBoot has the tail be one that was left by another boot.
func anotherBoot() error {
	b, err := os.ReadFile(recordFile("tail"))
	if err != nil {
		return err
	}
	copy(b, `{"boot":"00000000`)
	return overwrite(recordFile("tail"), b[:512])
}

func overwrite(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Close())
}

// Where the tail is found wanting when the run has begun to be made, the other program
// is asked to look at it; and what that says is what people are told.
func TestLeanAsks(t *testing.T) {
	program := joined(t)
	for name, c := range map[string]struct {
		do   func() error
		says string
	}{
		"another boot": {anotherBoot, "one\n"},
		"a head of somebody's": {func() error { return overwrite(recordFile("head"), bytes.Repeat([]byte(" "), 512)) },
			"the record was damaged or tampered with\n  hint: run: caisson audit verify"},
	} {
		t.Run(name, func(t *testing.T) {
			tail, err := os.OpenFile(recordFile("tail"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer tail.Close()
			if err := unix.Flock(int(tail.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			head, err := os.ReadFile(recordFile("head"))
			if err != nil {
				t.Fatal(err)
			}
			opened := opens(t, recordFile("tail"))
			type end struct{ which, out string }
			ended := make(chan end)
			go func() {
				which, out := ran(t, program, "", "run", "--isolation", "process", "--", "echo", "one")
				ended <- end{which, out}
			}()
			opened(8) // it waits for the lock
			err = c.do()
			if err := errors.Join(err, unix.Flock(int(tail.Fd()), unix.LOCK_UN)); err != nil {
				t.Fatal(err)
			}
			if e := <-ended; e.which != "lean" || !strings.Contains(e.out, c.says) {
				t.Errorf("in the %s program: %s", e.which, e.out)
			}
			if err := overwrite(recordFile("head"), head); err != nil {
				t.Fatal(err)
			}
			if _, out := ran(t, program, "", "audit", "verify"); !strings.Contains(out, "all in order") {
				t.Errorf("%s", out)
			}
		})
	}
}

// Ctrl-C reaches all processes of a terminal, and SIGTERM all of a service: the one that
// looks at the tail for a run that has ended goes on, and the end is recorded.
func TestLeanAsksAlone(t *testing.T) {
	program := joined(t)
	ran(t, program, "", "run", "--isolation", "process", "--", "true") // leaves a record that can be appended to
	cmd := exec.Command(program, "run", "--isolation", "process", "--", "sh", "-c", "echo begun; read x")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "begun\n" {
		t.Fatalf("%q, %v", line, err)
	}
	db, err := sql.Open("sqlite", "file:"+recordFile("db")+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin() // whoever looks at the tail waits for this
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := os.Chtimes(recordFile("db"), now, now); err != nil {
		t.Fatal(err)
	}
	opened := opens(t, recordFile("db"))
	stdin.Close()
	opened(1)
	err = errors.Join(syscall.Kill(-cmd.Process.Pid, syscall.SIGINT), syscall.Kill(settler(t, cmd.Process.Pid), syscall.SIGTERM), tx.Rollback())
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, out := ran(t, program, "", "audit", "ls", "--limit", "1"); !strings.Contains(out, " allowed ") {
		t.Errorf("%s", out)
	}
}

// settler is the child of a run that looks at the tail for it.
func settler(t *testing.T, run int) (pid int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", run))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lists {
		children, _ := os.ReadFile(name)
		for child := range strings.FieldsSeq(string(children)) {
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if strings.HasSuffix(string(line), "\x00audit\x00settle\x00") {
				pid, err = strconv.Atoi(child)
			}
		}
	}
	if err != nil || pid == 0 {
		t.Fatalf("nobody looks at the tail: %v", err)
	}
	return pid
}

// opens returns what waits until a file was opened so many times.
func opens(t *testing.T, name string) (wait func(n int)) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { f.Close() })
	if _, err := unix.InotifyAddWatch(fd, name, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func(n int) {
		b := make([]byte, unix.SizeofInotifyEvent)
		for range n {
			if _, err := f.Read(b); err != nil {
				t.Fatal(err)
			}
		}
	}
}
