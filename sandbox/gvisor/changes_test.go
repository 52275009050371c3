// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// boxWithLayers has a shim that does nothing, whose end is given, and layers at these
// targets, whose writers are given.
func boxWithLayers(t *testing.T, told func(string, io.Reader) error, targets ...string) (b *box, shim *protocol.Commands, kernel []*os.File) {
	t.Helper()
	conn, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); theirs.Close() })
	b = &box{spec: &sandbox.Spec{OnChanges: told}, shim: &shimProcess{process: undying{}, conn: conn}}
	for _, target := range targets {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		b.layers.all = append(b.layers.all, layer{target: target, read: r})
		kernel = append(kernel, w)
	}
	return b, protocol.NewCommands(unixConn(t, theirs)), kernel
}

// A kernel that does not write its layers in time is first asked and then killed, and
// nothing is told of what it has not written.
func TestSlowLayers(t *testing.T) {
	defer func(d time.Duration) { stopGrace = d }(stopGrace)
	stopGrace = time.Millisecond
	var whole, cut int
	begun := make(chan struct{})
	b, shim, kernel := boxWithLayers(t, func(target string, layer io.Reader) error {
		data := make([]byte, 3)
		if _, err := io.ReadFull(layer, data); err != nil {
			t.Error(err)
		}
		if target == "/second" {
			close(begun)
		}
		rest, err := io.ReadAll(layer)
		data = append(data, rest...)
		if string(data) == "whole" && err == nil && target == "/first" {
			whole++
		} else if string(data) == "cut" && errors.Is(err, os.ErrDeadlineExceeded) && target == "/second" {
			cut++
		} else {
			t.Errorf("%s: %q, %v", target, data, err)
		}
		return io.ErrUnexpectedEOF // nothing comes of it
	}, "/first", "/second", "/third")
	_, werr := kernel[0].WriteString("whole")
	_, cerr := kernel[1].WriteString("cut")
	if err := errors.Join(werr, cerr, kernel[0].Close()); err != nil {
		t.Fatal(err)
	}
	told := b.tellChanges()
	<-begun // what is not begun by then is not told at all
	b.stop()
	<-told
	for _, want := range []protocol.CommandKind{protocol.Stop, protocol.Kill} {
		if c, _, err := shim.Next(); err != nil || c.Kind != want {
			t.Errorf("the shim was told %q, %v, want %q", c.Kind, err, want)
		}
	}
	if whole != 1 || cut != 1 {
		t.Errorf("%d layers were told whole and %d cut", whole, cut)
	}
}

// Each mebibyte that comes gives the rest another second: what is long is not cut, unless
// the run was ended.
func TestLongLayers(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	l := &layers{got: 40 << 20}
	l.begin(r)
	l.pressed = time.Now().Add(-stopGrace - 30*time.Second)
	l.setDeadline()
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Read(make([]byte, 2)); n != 1 || err != nil || l.isLate() {
		t.Errorf("%d bytes, %v", n, err)
	}
	l.press(time.Now().Add(-time.Second)) // who has ended the run does not wait
	if n, err := l.Read(make([]byte, 2)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !l.isLate() {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func unixConn(t *testing.T, f *os.File) *net.UnixConn {
	t.Helper()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UnixConn)
}
