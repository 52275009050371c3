// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/sandbox"
)

// helpers are what the test binary does when a test runs it again.
var helpers = map[string]func(args []string) error{
	// append DIR NAME COUNT records that many calls.
	"append":              appendMany,
	"full":                fullDisk,
	"takeover-unwritable": takeOverUnwritable,
	"reserve":             reserved,
}

// appendMany records calls, and says which.
func appendMany(args []string) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	l, err := Open(ctx, Options{Dir: args[0]})
	if err != nil {
		return err
	}
	for i := range n {
		e, err := l.Begin(ctx, intent(fmt.Sprintf("%s_%d", args[1], i)))
		if err != nil {
			return err
		}
		fmt.Println("begun", e.ID)
		if err := e.End(ctx, outcome(args[1])); err != nil {
			return err
		}
		fmt.Println("ended", e.ID)
	}
	return nil // without Close, as a process that ends at once
}

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "audit-helper" {
		maxWait = 5 * time.Minute
		if err := helpers[os.Args[2]](os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func helper(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append([]string{"audit-helper"}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// TestManyProcesses has six processes write 50 calls each at once: the chain stays one,
// and nothing is lost.
func TestManyProcesses(t *testing.T) {
	const processes, calls = 6, 50
	dir := t.TempDir()
	var all []*exec.Cmd
	for i := range processes {
		cmd := helper("append", dir, fmt.Sprint(i), fmt.Sprint(calls))
		must(t, cmd.Start())
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	rep := verify(t, dir)
	wantOK(t, rep)
	if want := int64(1 + 2*processes*calls); rep.Records != want {
		t.Errorf("%d records, want %d", rep.Records, want)
	}
}

// TestKilled kills writers at any moment. What they said was done is in the
// record, and the chain is whole.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	begun, ended := map[string]bool{}, map[string]bool{}
	for round := range 12 {
		cmd := helper("append", dir, fmt.Sprint(round), "1000000")
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			word, id, _ := strings.Cut(lines.Text(), " ")
			if word == "begun" {
				begun[id] = true
			} else {
				ended[id] = true
			}
			if n == 7+round { // SIGKILL, somewhere in the next call
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
	}
	wantOK(t, verify(t, dir))
	l := open(t, dir)
	for r, err := range l.Query(ctx, Filter{}) {
		must(t, err)
		if ended[r.ID] && r.Status != Allowed {
			t.Errorf("%s had ended and is %s", r.ID, r.Status)
		}
		delete(begun, r.ID)
	}
	if len(begun) > 0 {
		t.Errorf("lost: %v", begun)
	}
	call(t, l, "after")
	wantOK(t, verify(t, dir))
}

func onlyRootMounts(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone mounts a small disk")
	}
}

// TestFullDisk runs as a helper with a disk of its own.
func TestFullDisk(t *testing.T) {
	onlyRootMounts(t)
	cmd := helper("full", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if out, err := cmd.Output(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestReserve runs as a helper with a disk of its own.
func TestReserve(t *testing.T) {
	onlyRootMounts(t)
	cmd := helper("reserve", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if out, err := cmd.Output(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// reserved fills a disk that ends have a reserve on: they are recorded, nothing
// begins, and that goes on once there is space again.
func reserved(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", args[0], "tmpfs", 0, "size=32m,mode=0700"); err != nil {
		return err
	}
	dir, err := store.Open(store.Options{Dir: args[0] + "/state"})
	if err != nil {
		return err
	}
	reserve, err := dir.Reserve()
	if err != nil {
		return err
	}
	l, err := Open(ctx, Options{Dir: dir.Path(), Reserve: reserve})
	if err != nil {
		return err
	}
	running, err := l.Begin(ctx, intent("running"))
	if err != nil {
		return err
	}
	filler, err := os.Create(args[0] + "/filler")
	if err != nil {
		return err
	}
	io.Copy(filler, zeros{})
	// Until SQLite's own file has no room left in what it has already.
	for err = nil; err == nil; {
		err = l.commit(ctx, &addition{record: record{entry: strconv.FormatInt(time.Now().UnixNano(), 10), event: eventIntent, body: make([]byte, 64<<10)}})
	}
	if !store.Full(err) {
		return fmt.Errorf("a full disk: %w", err)
	}
	out := outcome("running")
	out.Stdout = NewCapture()
	out.Stdout.Write([]byte(strings.Repeat("x", 60<<10))) // more than is left in its log
	if err := running.End(ctx, out); err != nil {
		return fmt.Errorf("the end of what ran: %w", err)
	}
	for i := range 50 {
		in := intent(fmt.Sprint(i))
		if _, err := l.Begin(ctx, in); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "full") {
			return fmt.Errorf("what begins: %v, want ErrUnavailable", err)
		}
		if err := l.Refuse(ctx, in, Outcome{Status: Refused}); !errors.Is(err, sandbox.ErrUnavailable) {
			return fmt.Errorf("what is refused: %v, want ErrUnavailable", err)
		}
		in.Ends = true
		e, err := l.Begin(ctx, in)
		if err == nil {
			err = e.End(ctx, outcome(in.Sandbox))
		}
		if err != nil {
			return fmt.Errorf("what ends: %w", err)
		}
	}
	if err := errors.Join(sound(ctx, l), filler.Close(), os.Remove(filler.Name())); err != nil {
		return err
	}
	if _, err := l.Begin(ctx, intent("after")); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	return sound(ctx, l)
}

// fullDisk fills a small disk and checks that Begin refuses, that nothing on
// record is lost, and that it goes on once there is space again.
func fullDisk(args []string) error {
	dir := args[0]
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		return err
	}
	l, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		return err
	}
	reserve := dir + "/reserve"
	if err := os.WriteFile(reserve, make([]byte, 256<<10), 0o600); err != nil {
		return err
	}
	calls := 0
	for ; err == nil; calls++ {
		if calls > 10_000 {
			return errors.New("the disk does not fill")
		}
		var e *Entry
		in := intent(fmt.Sprint(calls))
		in.Code = []byte(strings.Repeat(fmt.Sprint(calls), 1000))
		if e, err = l.Begin(ctx, in); err == nil {
			err = e.End(ctx, outcome(fmt.Sprint(calls)))
		}
	}
	if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "full") || !strings.Contains(sandbox.Hint(err), "free some space") {
		return fmt.Errorf("on a full disk: %w (hint %q)", err, sandbox.Hint(err))
	}
	filler, err := os.Create(dir + "/filler")
	if err != nil {
		return err
	}
	io.Copy(filler, zeros{}) // until the very last page is taken
	if _, err := l.Begin(ctx, intent("x")); !errors.Is(err, sandbox.ErrUnavailable) {
		return fmt.Errorf("on a full disk: %v, want ErrUnavailable", err)
	}
	if _, err := Open(ctx, Options{Dir: dir + "/"}); err != nil {
		return fmt.Errorf("opening on a full disk: %w", err)
	}
	if err := sound(ctx, l); err != nil {
		return err
	}
	filler.Close()
	if err := errors.Join(os.Remove(filler.Name()), os.Remove(reserve)); err != nil {
		return err
	}
	if _, err := l.Begin(ctx, intent("after")); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	return sound(ctx, l)
}

func sound(ctx context.Context, l *Log) error {
	rep, err := l.Verify(ctx)
	if err == nil && !rep.OK() {
		err = fmt.Errorf("findings: %v", rep.Findings)
	}
	return err
}

// TestBusy has another process hold the write lock: Begin waits for it, and
// says so when its caller will not wait.
func TestBusy(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	other := open(t, dir)
	tx, err := other.w.BeginTx(ctx, nil)
	must(t, err)
	impatient, cancel := context.WithCancel(ctx)
	defer cancel()
	l.onBusy = cancel
	if _, err := l.Begin(impatient, intent("a")); !errors.Is(err, sandbox.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("Begin = %v, want ErrUnavailable for the caller who left", err)
	}
	l.onBusy = nil
	done := make(chan error)
	go func() {
		_, err := l.Begin(ctx, intent("b"))
		done <- err
	}()
	must(t, tx.Rollback())
	must(t, <-done)
	wantOK(t, verify(t, dir))
}
