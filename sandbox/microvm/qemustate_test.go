// SPDX-License-Identifier: Apache-2.0

//go:build linux

package microvm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/microvm"
)

// falseQEMU answers commands on a socket as a QEMU in hostile hands might. What it is given
// with getfd it writes into until that is not read any more.
type falseQEMU struct {
	conn   *net.UnixConn
	writes []byte // again and again, so many times
	times  int
	open   bool   // it does not end the stream before the conversation ends
	status string // what comes of it
}

func (q *falseQEMU) serve(t *testing.T) {
	defer q.conn.Close()
	_, _ = q.conn.Write([]byte(greeting))
	var stream *os.File
	defer func() { stream.Close() }()
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	for {
		n, nfd, _, _, err := q.conn.ReadMsgUnix(buf, oob)
		if err != nil || n == 0 {
			return
		}
		var c struct {
			Execute string `json:"execute"`
			ID      int    `json:"id"`
		}
		if err := json.Unmarshal(buf[:n], &c); err != nil {
			t.Errorf("%q: %v", buf[:n], err)
			return
		}
		result := "{}"
		switch c.Execute {
		case "getfd":
			if stream = received(oob[:nfd]); stream == nil {
				t.Error("it was given no file")
				return
			}
		case "migrate-incoming":
			go func() {
				_, _ = io.Copy(io.Discard, stream)
			}()
		case "migrate":
			go func() {
				if !q.open {
					defer stream.Close()
				}
				for range q.times {
					if _, err := stream.Write(q.writes); err != nil {
						return
					}
				}
			}()
		case "query-migrate":
			result = q.status
		}
		if _, err := fmt.Fprintf(q.conn, "{\"return\": %s, \"id\": %d}\n", result, c.ID); err != nil {
			return
		}
	}
}

// received is the file that came with a message.
func received(oob []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) == 0 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	return os.NewFile(uintptr(fds[0]), "stream")
}

// socketPair is a socket by its two ends.
func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// A monitor that writes a machine down as it likes fills no disk, and is not believed.
func TestFalseMachine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for name, tt := range map[string]struct {
		times         int
		status, fails string
	}{
		"as it should": {3, `{"status": "completed"}`, ""},
		"without end":  {1 << 30, `{"status": "failed"}`, "more than its machine has"},
		"failed":       {1, `{"status": "failed", "error-desc": "no\u001b[2J"}`, `gave it up: it says "failed: no\x1b[2J"`},
		"nonsense":     {1, `[]`, "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := socketPair(t)
			served := make(chan struct{})
			go func() {
				defer close(served)
				(&falseQEMU{conn: theirs, writes: bytes.Repeat([]byte("x"), 64<<10), times: tt.times, status: tt.status}).serve(t)
			}()
			got, err := microvm.Save(t.Context(), ours, 1<<20, time.Hour)
			if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%v, want %q", err, tt.fails)
			}
			if got > 1<<20 || err == nil && got != int64(tt.times)*64<<10 {
				t.Errorf("it took %d bytes", got)
			}
			ours.Close()
			<-served
		})
	}
}

// A monitor that says that it writes, and does not, is not waited for without end.
func TestSilentMachine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ours, theirs := socketPair(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		(&falseQEMU{conn: theirs, writes: []byte("x"), times: 1, open: true, status: `{"status": "active"}`}).serve(t)
	}()
	if _, err := microvm.Save(t.Context(), ours, 1<<20, time.Millisecond); !errors.Is(err, microvm.ErrStalled) {
		t.Errorf("%v", err)
	}
	ours.Close()
	<-served
}

// What QEMU does not take does not fit; a disk that cannot be read says nothing of that.
func TestLoad(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	broken := errors.New("input/output error")
	for name, tt := range map[string]struct {
		from   io.Reader
		status string
		want   error
	}{
		"as it should": {strings.NewReader("x"), `{"status": "completed"}`, nil},
		"refused":      {strings.NewReader("x"), `{"status": "failed", "error-desc": "` + strings.Repeat("x", 5000) + `"}`, microvm.ErrRefused},
		"unreadable":   {io.MultiReader(strings.NewReader("x"), iotest.ErrReader(broken)), `{"status": "failed"}`, broken},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := socketPair(t)
			served := make(chan struct{})
			go func() {
				defer close(served)
				(&falseQEMU{conn: theirs, status: tt.status}).serve(t)
			}()
			err := microvm.Load(t.Context(), ours, tt.from)
			if !errors.Is(err, tt.want) || tt.want != microvm.ErrRefused && errors.Is(err, microvm.ErrRefused) || len(fmt.Sprint(err)) > 500 {
				t.Errorf("%v, want %v", err, tt.want)
			}
			ours.Close()
			<-served
		})
	}
}

// Whether a machine that was written down runs is not for what was written to say.
func TestIncomingStands(t *testing.T) {
	for _, goesOn := range []bool{false, true} {
		argv := microvm.QEMUArgv(&sandbox.Spec{ID: "sbx_x", Limits: sandbox.Limits{Memory: 64 << 20}}, goesOn)
		if slices.Contains(argv, "-S") != goesOn {
			t.Errorf("goes on: %v, %q", goesOn, argv)
		}
	}
}
