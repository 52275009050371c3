// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// onTerminal runs caisson with a terminal for its three streams and returns
// what the terminal was sent. typed is what the user types once want showed up;
// before anything is shown where want is empty.
func onTerminal(t *testing.T, want, typed string, args ...string) (screen string, before, after *unix.Termios) {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv("CAISSON_TEST_BINARY") == "" {
		t.Skip("needs root, for the fake level")
	}
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := pty.Setsize(slave, &pty.Winsize{Rows: 33, Cols: 99}); err != nil {
		t.Fatal(err)
	}
	before, err = unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if want == "" {
		io.WriteString(master, typed)
		typed = ""
	}
	cmd := exec.Command("caisson", args...)
	cmd.Env = append(os.Environ(), "CAISSON_STATE="+filepath.Join(t.TempDir(), "state"), "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A read of the master ends when no process holds the slave any more.
	var seen bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			seen.Write(buf[:n])
			if typed != "" && strings.Contains(seen.String(), want) {
				io.WriteString(master, typed)
				typed = ""
			}
			if err != nil {
				return
			}
		}
	}()
	cmd.Wait() // its exit code is the scripts' to test
	after, err = unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	slave.Close()
	<-read
	return seen.String(), before, after
}

func TestTerminalGetsColoursAndNoTitle(t *testing.T) {
	const text = `a\033[31mred\033]0;title\007b\033[6n\n`
	screen, _, _ := onTerminal(t, "", "", "run", "--timeout", "30s", "--", "printf", text)
	if want := "a\x1b[31mredb\r\n\x1b[0m"; screen != want {
		t.Errorf("got %q, want %q", screen, want)
	}
	screen, _, _ = onTerminal(t, "", "", "run", "--timeout", "30s", "--raw", "--", "printf", text)
	if !strings.Contains(screen, "\x1b]0;title\a") {
		t.Errorf("--raw took something out: %q", screen)
	}
}

func TestErrorsAreColouredOnATerminalOnly(t *testing.T) {
	screen, _, _ := onTerminal(t, "", "", "nonsense")
	if !strings.HasPrefix(screen, "\x1b[1;31mcaisson:\x1b[0m ") {
		t.Errorf("got %q", screen)
	}
}

// With -it keys go to the program, Ctrl-C among them; the size is the
// terminal's; and whatever happened, the terminal is as it was.
func TestInteractive(t *testing.T) {
	screen, before, after := onTerminal(t, "ready", "\x03", "run", "-it", "--timeout", "5m", "--",
		"sh", "-c", `trap 'echo caught; exit 0' INT; stty size; echo ready; while :; do :; done`)
	if !strings.Contains(screen, "33 99") || !strings.Contains(screen, "caught") {
		t.Errorf("the screen shows %q", screen)
	}
	if *before != *after {
		t.Errorf("the terminal was left in another mode:\n%+v\n%+v", before, after)
	}
	_, before, after = onTerminal(t, "", "", "run", "-it", "--timeout", "300ms", "--", "sleep", "30")
	if *before != *after {
		t.Errorf("after a timeout the terminal was left in another mode:\n%+v\n%+v", before, after)
	}
}

// What a program asks the terminal as its last word is answered when it has ended. No shell
// reads the answer as if it were typed.
func TestTerminalAnswersLate(t *testing.T) {
	const query, answer = "\x1b[6n", "\x1b[24;80R; evil\r"
	for _, in := range []string{"-t", "-it"} {
		master, slave, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("caisson", "run", in, "--timeout", "60s", "--", "printf", `\033[6n\033[5n\033]0;`)
		cmd.Env = append(os.Environ(), "CAISSON_STATE="+filepath.Join(t.TempDir(), "state"), "TERM=xterm")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		screen := make(chan string)
		go func() {
			defer close(screen)
			for buf := make([]byte, 4096); ; {
				n, err := master.Read(buf)
				if err != nil {
					return
				}
				screen <- string(buf[:n])
			}
		}()
		// The terminal is a slow one: it answers once it is asked again, or all is over.
		var seen string
		for over, answered := false, false; !over; {
			select {
			case s := <-screen:
				seen += s
			case <-ended:
				over = true
			}
			if !answered && strings.Contains(seen, query) && (over || strings.Count(seen, askStatus) == 2) {
				answered = true
				io.WriteString(master, answer+statusIsWell+statusIsWell)
			}
		}
		io.WriteString(master, "typed\r")
		line := make([]byte, 256)
		n, err := unix.Read(int(slave.Fd()), line)
		if err != nil || string(line[:n]) != "typed\n" || !strings.Contains(seen, query) {
			t.Errorf("%s: the shell reads %q, %v; the screen shows %q", in, line[:max(n, 0)], err, seen)
		}
		if !strings.Contains(seen, "\x1b]0;\x1b\\") {
			t.Errorf("%s: what the program began goes on: %q", in, seen)
		}
		slave.Close()
		master.Close()
		for range screen {
		}
	}
}

func TestCtrlCWithoutATerminalInside(t *testing.T) {
	screen, _, _ := onTerminal(t, "ready", "\x03", "run", "--timeout", "60s", "--", "sh", "-c", "echo ready; exec sleep 50")
	if !strings.Contains(screen, "ended by SIGINT") {
		t.Errorf("the screen shows %q", screen)
	}
}

// The operator is asked at the terminal that caisson was started from. Only the
// word yes is one, and keys that were pressed before the question are no answer.
func TestApprovalAtTheTerminal(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "p.yaml")
	src := "version: 1\ncommands: {ask: [\"echo *\"]}\napprovals: {timeout: 2s}\n"
	if err := os.WriteFile(policy, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	run := []string{"run", "--policy", policy, "--", "echo", "r\u202ean", "for\x1b[2J real", "=done="}
	for name, c := range map[string]struct {
		want, typed string
		ran         bool
	}{
		"yes":                 {"Let it run", "yes\r", true},
		"no":                  {"Let it run", "no\r", false},
		"Enter":               {"Let it run", "\r", false},
		"y":                   {"Let it run", "y\r", false},
		"Ctrl-C":              {"Let it run", "\x03", false},
		"Ctrl-D":              {"Let it run", "\x04", false},
		"nothing":             {"never shown", "", false},
		"before it was asked": {"", "yes\r", false},
	} {
		screen, before, after := onTerminal(t, c.want, c.typed, run...)
		if ran := strings.Contains(screen, "real =done=\r\n"); ran != c.ran {
			t.Errorf("%s: the screen shows\n%s", name, screen)
		}
		if !strings.Contains(screen, "r⟨U+202E⟩an") || !strings.Contains(screen, "for⟨ESC⟩[2J real") || strings.Contains(screen, "\x1b[2J") {
			t.Errorf("%s: shown as\n%q", name, screen)
		}
		if !c.ran && !strings.Contains(screen, "denied: ") && name != "Ctrl-C" {
			t.Errorf("%s: it does not say that it was denied:\n%s", name, screen)
		}
		if *before != *after {
			t.Errorf("%s: the terminal was left in another mode", name)
		}
	}
}
