// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// Two messages in a row, the second with more files than fit into one control
// message and more JSON than a socket buffers, and a line after them.
func TestMessages(t *testing.T) {
	owner, shim := pair(t)
	var sent []*os.File
	for i := range atOnce + 10 {
		f, err := os.Create(fmt.Sprintf("%s/%d", t.TempDir(), i))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sent = append(sent, f)
	}
	long := Order{ID: strings.Repeat("x", 4<<20)}
	done := make(chan error, 1)
	go func() {
		_, err := owner.Write(nil)
		err = errors.Join(err, Send(owner, InitMessage{StateDir: "/s"}, nil), Send(owner, &long, sent))
		_, last := owner.Write([]byte("line\n"))
		done <- errors.Join(err, last, owner.Close())
	}()
	var msg InitMessage
	if files, err := Receive(shim, &msg); err != nil || len(files) != 0 || msg.StateDir != "/s" {
		t.Fatalf("%v, %d files, %+v", err, len(files), msg)
	}
	var order Order
	files, err := Receive(shim, &order)
	if err != nil || order.ID != long.ID || len(files) != len(sent) {
		t.Fatalf("%v, %d files of %d, %d bytes", err, len(files), len(sent), len(order.ID))
	}
	for i, f := range files {
		a, aerr := f.Stat()
		b, berr := sent[i].Stat()
		if err := errors.Join(aerr, berr, f.Close()); err != nil || !os.SameFile(a, b) {
			t.Fatalf("file %d is another (%v)", i, err)
		}
	}
	if rest, err := io.ReadAll(shim); err != nil || string(rest) != "line\n" {
		t.Errorf("after them: %q, %v", rest, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An owner that dies in the middle leaves no file open here.
func TestBrokenOff(t *testing.T) {
	for name, data := range map[string][]byte{
		"nothing": nil, "half a head": {1, 2, 3}, "no files": {2, 0, 0, 0, 1, 0, 0, 0}, "files without files": {2, 0, 0, 0, 1, 0, 0, 0, 0, '{', '}'},
		"no JSON": {2, 0, 0, 0, 0, 0, 0, 0}, "too long": {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, "too many": {2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff},
		"not JSON": {1, 0, 0, 0, 0, 0, 0, 0, '['},
	} {
		owner, shim := pair(t)
		if _, err := owner.Write(data); err != nil {
			t.Fatal(err)
		}
		owner.Close()
		var o Order
		if files, err := Receive(shim, &o); err == nil || len(files) != 0 {
			t.Errorf("%s: %v, %d files", name, err, len(files))
		}
	}
}

// Commands with files and without, all in the socket before one is read.
func TestCommands(t *testing.T) {
	owner, shim := pair(t)
	var sent []*os.File
	for i := range 4 {
		f, err := os.Create(fmt.Sprintf("%s/%d", t.TempDir(), i))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sent = append(sent, f)
		err = errors.Join(SendCommand(owner, Command{Kind: Measure}, nil), SendCommand(owner, Command{Kind: ReadLayer, Target: fmt.Sprint(i)}, f),
			SendCommand(owner, Command{Kind: Signal, Signal: i}, nil))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := owner.Write([]byte(`{"kind":"read_layer","with_file":true}`)); err != nil {
		t.Fatal(err)
	}
	owner.Close()
	in := NewCommands(shim)
	for i, f := range sent {
		first, none, err := in.Next()
		if err != nil || none != nil || first.Kind != Measure {
			t.Fatalf("%+v, %v, %v", first, none, err)
		}
		with, got, err := in.Next()
		if err != nil || got == nil || with.Target != fmt.Sprint(i) {
			t.Fatalf("%+v, %v, %v", with, got, err)
		}
		a, aerr := got.Stat()
		b, berr := f.Stat()
		if err := errors.Join(aerr, berr, got.Close()); err != nil || !os.SameFile(a, b) {
			t.Fatalf("file %d is another (%v)", i, err)
		}
		if last, none, err := in.Next(); err != nil || none != nil || last.Signal != i {
			t.Fatalf("%+v, %v, %v", last, none, err)
		}
	}
	if c, f, err := in.Next(); err == nil || f != nil {
		t.Errorf("a command whose file did not come: %+v, %v", c, f)
	}
	if _, _, err := in.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after all: %v", err)
	}
	in.Close()
}
